//! apprise, a client that many programs use, publishing to us.

use std::process::{Command, Stdio};

use super::{kept, run, server};

// S002-68
#[tokio::test(flavor = "multi_thread")]
async fn apprise_publishes_with_a_token() {
    let server = server().await;
    let python = std::env::var("TIDINGS_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let address = server.push_url.as_ref().unwrap().trim_start_matches("http://");
    let script = "import sys\n\
        try:\n    import apprise\n\
        except ImportError:\n    sys.exit('this test needs apprise: install it with `' + sys.executable + ' -m pip install apprise`')\n\
        one = apprise.Apprise()\n\
        one.add(sys.argv[1])\n\
        sys.exit(0 if one.notify(title='Größe', body='Zeile 1\\nZeile 2') else 'apprise could not deliver')\n";
    let url = format!(
        "ntfy://{}@{address}/ops?auth=token&priority=high&tags=warning,skull&click=https://x.example/",
        server.admin_token()
    );
    let mut command = Command::new(&python);
    command.args(["-c", script, &url]).env("NO_PROXY", "*").stdin(Stdio::null());
    run(command).await;

    let kept = kept(&server, "ops").await;
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert_eq!((kept[0]["title"].as_str(), kept[0]["priority"].as_u64()), (Some("Größe"), Some(4)));
    assert_eq!(kept[0]["message"], "Zeile 1\nZeile 2");
    // apprise keeps tags as a set.
    let mut tags: Vec<_> = kept[0]["tags"].as_array().unwrap().iter().map(|tag| tag.as_str().unwrap()).collect();
    tags.sort_unstable();
    assert_eq!(tags, ["skull", "warning"]);
    assert_eq!(kept[0]["click"], "https://x.example/");
}
