// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the engine NATS encrypts its connection and authenticates itself, with a real server; tests/bridge runs this.

mod support;

use std::fs;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use serde_json::{Value, json};
use sluice_bridge::config::Config;
use sluice_bridge::engine::Engine as _;
use sluice_bridge::engine::nats::NatsEngine;
use tokio::time::timeout;

use support::{LIMIT, Server, runtime};

/// An attempt to connect that the server refuses fails sooner.
const REFUSED: Duration = Duration::from_secs(2);

fn certificate(name: &str) -> String {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/certificates");
    directory.join(name).display().to_string()
}

/// Connects with these lines of the configuration.
async fn connects(server: &Server, scheme: &str, lines: &str, limit: Duration) -> bool {
    let file = server.directory().join("bridge.toml");
    let port = server.port();
    let text = format!("id = \"a\"\n[server]\nurls = [\"{scheme}://127.0.0.1:{port}\"]\n{lines}\n");
    fs::write(&file, text).unwrap();
    let config = Config::read(&file).unwrap();
    let engine = NatsEngine::connect(&config.server, "a", 16).await.unwrap();
    timeout(limit, engine.connected()).await.is_ok()
}

#[test]
fn both_sides_have_certificates() {
    let server = Server::with(
        "tls",
        &format!(
            "tls {{ cert_file: \"{}\", key_file: \"{}\", ca_file: \"{}\", verify: true }}",
            certificate("server.pem"),
            certificate("server.key"),
            certificate("ca.pem")
        ),
    );
    let ca = format!("ca = \"{}\"", certificate("ca.pem"));
    let own = format!(
        "certificate = \"{}\"\nkey = \"{}\"",
        certificate("client.pem"),
        certificate("client.key")
    );
    runtime().block_on(async {
        assert!(connects(&server, "tls", &format!("{ca}\n{own}"), LIMIT).await);
        // The system does not know who signed the certificate of the server; the server wants one.
        assert!(!connects(&server, "tls", &own, REFUSED).await);
        assert!(!connects(&server, "tls", &ca, REFUSED).await);
    });
}

#[test]
fn a_server_without_tls_is_refused() {
    let server = Server::with("plain", "");
    runtime().block_on(async {
        assert!(connects(&server, "nats", "", LIMIT).await);
        assert!(!connects(&server, "tls", "", REFUSED).await);
    });
}

#[test]
fn a_user_has_a_password() {
    let server = Server::with("password", "authorization { user: a, password: secret }");
    let file = server.directory().join("password");
    let lines = format!("user = \"a\"\npassword = \"{}\"", file.display());
    runtime().block_on(async {
        fs::write(&file, "secret\n").unwrap();
        assert!(connects(&server, "nats", &lines, LIMIT).await);
        fs::write(&file, "wrong\n").unwrap();
        assert!(!connects(&server, "nats", &lines, REFUSED).await);
    });
}

#[test]
fn an_nkey_is_a_file_with_a_seed() {
    let user = KeyPair::new_user();
    let users = format!(
        "authorization {{ users: [ {{ nkey: {} }} ] }}",
        user.public_key()
    );
    let server = Server::with("nkey", &users);
    let file = server.directory().join("nkey");
    let lines = format!("nkey = \"{}\"", file.display());
    runtime().block_on(async {
        fs::write(&file, format!("{}\n", user.seed().unwrap())).unwrap();
        assert!(connects(&server, "nats", &lines, LIMIT).await);
        fs::write(&file, KeyPair::new_user().seed().unwrap()).unwrap();
        assert!(!connects(&server, "nats", &lines, REFUSED).await);
    });
}

/// Claims of `subject` that `issuer` signs.
fn jwt(issuer: &KeyPair, subject: &KeyPair, claims: Value) -> String {
    let encode = |value: Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let head = encode(json!({"typ": "JWT", "alg": "ed25519-nkey"}));
    let body = encode(json!({
        "jti": "1",
        "iat": 1,
        "iss": issuer.public_key(),
        "name": "test",
        "sub": subject.public_key(),
        "nats": claims,
    }));
    let text = format!("{head}.{body}");
    let signature = BASE64_URL_SAFE_NO_PAD.encode(issuer.sign(text.as_bytes()).unwrap());
    format!("{text}.{signature}")
}

fn credentials(account: &KeyPair, user: &KeyPair) -> String {
    let claims = json!({"type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1});
    format!(
        "-----BEGIN NATS USER JWT-----\n{}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
        jwt(account, user, claims),
        user.seed().unwrap()
    )
}

#[test]
fn credentials_are_a_file() {
    let (operator, account) = (KeyPair::new_operator(), KeyPair::new_account());
    let of_operator = jwt(
        &operator,
        &operator,
        json!({"type": "operator", "version": 2}),
    );
    let limits =
        json!({"subs": -1, "data": -1, "payload": -1, "conn": -1, "leaf": -1, "wildcards": true});
    let of_account = jwt(
        &operator,
        &account,
        json!({"type": "account", "version": 2, "limits": limits}),
    );
    let server = Server::with(
        "credentials",
        &format!(
            "operator: {of_operator}\nresolver: MEMORY\nresolver_preload: {{ {}: {of_account} }}",
            account.public_key()
        ),
    );
    let file = server.directory().join("credentials");
    let lines = format!("credentials = \"{}\"", file.display());
    runtime().block_on(async {
        fs::write(&file, credentials(&account, &KeyPair::new_user())).unwrap();
        assert!(connects(&server, "nats", &lines, LIMIT).await);
        let other = credentials(&KeyPair::new_account(), &KeyPair::new_user());
        fs::write(&file, other).unwrap();
        assert!(!connects(&server, "nats", &lines, REFUSED).await);
    });
}

#[test]
fn a_wrong_file_is_an_error_at_the_start() {
    let server = Server::with("files", "");
    let file = server.directory().join("file");
    let config = server.directory().join("bridge.toml");
    runtime().block_on(async {
        for (lines, words) in [
            (format!("ca = \"{}\"", file.display()), "PEM"),
            (format!("nkey = \"{}\"", file.display()), "nk -gen user"),
            (
                format!("credentials = \"{}\"", file.display()),
                "nsc generate",
            ),
            ("nkey = \"/no/file\"".to_owned(), "access"),
        ] {
            fs::write(&file, "wrong").unwrap();
            let text = format!("id = \"a\"\n[server]\nurls = [\"tls://127.0.0.1:1\"]\n{lines}\n");
            fs::write(&config, text).unwrap();
            let config = Config::read(&config).unwrap();
            let error = NatsEngine::connect(&config.server, "a", 16)
                .await
                .err()
                .unwrap();
            assert!(format!("{error:#}").contains(words), "{error:#}");
        }
    });
}
