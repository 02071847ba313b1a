//! Style, script and icon, embedded in the program. Their addresses carry a version, so that a browser keeps them until
//! the next one.

use std::sync::LazyLock;

use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;
use ring::digest::{SHA256, digest};

use super::door::Page;

const STYLE: &str = include_str!("assets/app.css");
const SCRIPT: &str = include_str!("assets/app.js");
const ICON: &str = include_str!("assets/icon.svg");

pub fn pages() -> Vec<Page> {
    vec![
        Page::public("/ui/assets/app.css", get(|| async { asset("text/css; charset=utf-8", STYLE) })).params(&["v"]),
        Page::public("/ui/assets/app.js", get(|| async { asset("text/javascript; charset=utf-8", SCRIPT) }))
            .params(&["v"]),
        Page::public("/ui/assets/icon.svg", get(|| async { asset("image/svg+xml", ICON) })).params(&["v"]),
    ]
}

fn asset(media_type: &'static str, text: &'static str) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, media_type), (header::CACHE_CONTROL, "public, max-age=31536000, immutable")], text)
}

/// The address of an asset in this version.
#[must_use]
pub fn address(name: &str) -> String {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let hash = digest(&SHA256, [STYLE, SCRIPT, ICON].concat().as_bytes());
        hash.as_ref().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
    });
    format!("/ui/assets/{name}?v={}", *VERSION)
}
