use sluiced::store::*;
use std::time::Instant;
fn main() {
    let dir = std::path::PathBuf::from(std::env::args().nth(1).unwrap());
    let mut s = sluiced::store_sqlite::SqliteStore::open(&dir, false).unwrap();
    let _ = &mut s;
}
