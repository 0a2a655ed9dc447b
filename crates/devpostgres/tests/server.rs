//! A real server, through its life and through the accidents that can meet it.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use roadstead_devpostgres::{Options, PostgresError, PrivatePostgres};

fn options() -> Options {
    Options { fsync: false, max_connections: 20, ..Options::default() }
}

/// A folder that the server's user can reach also when root runs the tests.
fn temp() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
    dir
}

fn sql(server: &PrivatePostgres, statement: &str) -> String {
    let output = Command::new("psql").args(["-XAtq", server.url(), "-c", statement]).output().unwrap();
    assert!(output.status.success(), "{statement}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn postmaster(state: &Path) -> i32 {
    let text = std::fs::read_to_string(state.join("data/postmaster.pid")).unwrap();
    text.lines().next().unwrap().parse().unwrap()
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn keeps_its_data_through_stop_and_start() {
    let dir = temp();
    let state = dir.path().join("state");
    let server = PrivatePostgres::start(&state, &options()).unwrap();
    assert!(!server.was_running());
    assert_eq!(sql(&server, "SHOW listen_addresses"), "");
    assert_eq!(sql(&server, "SHOW max_connections"), "20");
    sql(&server, "CREATE TABLE kept AS SELECT 42 AS answer");
    let pid = postmaster(&state);
    server.stop().unwrap();
    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "the server is gone after stop");

    let server = PrivatePostgres::start(&state, &options()).unwrap();
    assert_eq!(sql(&server, "SELECT answer FROM kept"), "42");
    server.stop().unwrap();
}

#[test]
fn refuses_a_second_user_of_the_folder_and_names_the_first() {
    let dir = temp();
    let state = dir.path().join("state");
    let server = PrivatePostgres::start(&state, &options()).unwrap();
    let error = PrivatePostgres::start(&state, &options()).unwrap_err();
    assert!(matches!(error, PostgresError::InUse { .. }), "{error}");
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    server.stop().unwrap();
}

#[test]
fn finds_the_server_that_a_killed_process_left() {
    let dir = temp();
    let state = dir.path().join("state");
    let server = PrivatePostgres::start(&state, &options()).unwrap();
    let pid = postmaster(&state);
    drop(server); // the lock goes and the server stays, as by kill -9 of its holder
    let server = PrivatePostgres::start(&state, &options()).unwrap();
    assert!(server.was_running());
    assert_eq!(postmaster(&state), pid);
    assert_eq!(sql(&server, "SELECT 1"), "1");
    drop(server);
    let server = PrivatePostgres::find(&state).unwrap().unwrap();
    assert_eq!(sql(&server, "SELECT 1"), "1");
    server.stop().unwrap();
    assert!(PrivatePostgres::find(&state).unwrap().is_none());
    assert!(PrivatePostgres::find(&dir.path().join("nothing")).unwrap().is_none());
}

#[test]
fn recovers_when_the_server_itself_was_killed() {
    let dir = temp();
    let state = dir.path().join("state");
    let server = PrivatePostgres::start(&state, &options()).unwrap();
    sql(&server, "CREATE TABLE kept AS SELECT 42 AS answer");
    kill(postmaster(&state));
    drop(server);
    let server = PrivatePostgres::start(&state, &options()).unwrap();
    assert!(!server.was_running());
    assert_eq!(sql(&server, "SELECT answer FROM kept"), "42");
    server.stop().unwrap();
}

#[test]
fn is_started_again_on_the_same_data_and_never_on_others() {
    let dir = temp();
    let state = dir.path().join("state");
    let mut server = PrivatePostgres::start(&state, &options()).unwrap();
    sql(&server, "CREATE TABLE kept AS SELECT 42 AS answer");
    let (url, before) = (server.url().to_owned(), server.id());
    assert!(!server.has_ended());
    kill(before);
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while !server.has_ended() {
        assert!(std::time::Instant::now() < deadline, "its end is not noticed");
        std::thread::sleep(Duration::from_millis(5));
    }
    server.restart().unwrap();
    assert!(!server.has_ended() && server.id() != before && server.url() == url);
    assert_eq!(sql(&server, "SELECT answer FROM kept"), "42");

    kill(server.id());
    while !server.has_ended() {
        assert!(std::time::Instant::now() < deadline, "its end is not noticed");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::fs::rename(state.join("data"), state.join("aside")).unwrap();
    let error = server.restart().unwrap_err();
    assert!(matches!(error, PostgresError::DataGone { .. }), "{error}");
    assert!(!state.join("data").exists(), "data were made again");
    server.stop().unwrap();
}

#[test]
fn starts_over_a_process_id_that_is_another_programs_now() {
    let dir = temp();
    let state = dir.path().join("state");
    PrivatePostgres::start(&state, &options()).unwrap().stop().unwrap();
    let stale = format!(
        "{}\n{}\n1700000000\n5432\n/nowhere\n\n 1 1\nready   \n",
        std::process::id(),
        state.join("data").display()
    );
    std::fs::write(state.join("data/postmaster.pid"), stale).unwrap();
    let server = PrivatePostgres::start(&state, &options()).unwrap();
    assert_eq!(sql(&server, "SELECT 1"), "1");
    server.stop().unwrap();
}

#[test]
fn starts_over_after_a_crash_while_the_data_was_made() {
    let dir = temp();
    let state = dir.path().join("state");
    roadstead_devpostgres::create_state_parent(&state).unwrap();
    std::fs::create_dir(state.join("data.unfinished")).unwrap();
    std::fs::write(state.join("data.unfinished/PG_VERSION"), "1").unwrap();
    let server = PrivatePostgres::start(&state, &options()).unwrap();
    assert_eq!(sql(&server, "SELECT 1"), "1");
    server.stop().unwrap();
}

#[test]
fn serves_from_a_folder_with_a_long_and_odd_name() {
    let dir = temp();
    let state = dir.path().join(format!("it's a \"{}\" $HOME", "long ".repeat(20)));
    let server = PrivatePostgres::start(&state, &options()).unwrap();
    assert_eq!(sql(&server, "SELECT 1"), "1");
    server.stop().unwrap();
}

#[test]
fn shows_why_the_server_did_not_start() {
    let dir = temp();
    let state = dir.path().join("state");
    PrivatePostgres::start(&state, &options()).unwrap().stop().unwrap();
    std::fs::write(state.join("data/postgresql.auto.conf"), "max_connections = many\n").unwrap();
    let error = PrivatePostgres::start(&state, &options()).unwrap_err().to_string();
    assert!(error.contains("max_connections") && error.contains("postgres.log"), "{error}");
}

#[test]
fn root_is_told_which_folder_is_in_the_way() {
    use std::os::unix::fs::PermissionsExt as _;
    if !rustix::process::geteuid().is_root() {
        // For anybody else the server is of the same user, and nothing can be in the way.
        return;
    }
    let dir = temp();
    let closed = dir.path().join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).unwrap();
    let error = PrivatePostgres::start(&closed.join("state"), &options()).unwrap_err();
    let PostgresError::Unreachable { blocked, .. } = &error else { panic!("{error}") };
    assert_eq!(blocked, &closed, "{error}");
}
