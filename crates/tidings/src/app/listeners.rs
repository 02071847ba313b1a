//! The addresses that a server takes.

use std::net::SocketAddr;

use tokio::net::TcpListener;

use super::StartError;
use crate::config::{Config, Listen};

/// The addresses that are taken.
pub struct Listeners {
    pub api: TcpListener,
    pub push: Option<TcpListener>,
}

/// Listens on the configured addresses, and puts the ports that were given into the configuration.
pub async fn bind(config: &mut Config) -> Result<Listeners, StartError> {
    let (api, address) = listen(config.listen, "--listen").await?;
    config.set_listen(address);
    let push = match config.push.listen.address() {
        Some(address) => {
            let (listener, address) = listen(address, "push.listen").await?;
            config.push.listen = Listen::on(address);
            Some(listener)
        }
        None => None,
    };
    Ok(Listeners { api, push })
}

async fn listen(address: SocketAddr, setting: &'static str) -> Result<(TcpListener, SocketAddr), StartError> {
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    bound.await.map_err(|source| StartError::Listen { address, setting, source })
}
