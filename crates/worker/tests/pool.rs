//! The pool with real worker processes: this program is the workers' program as well.

use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use roadstead_worker::{
    Exchange, FileAccess, Job, JobError, JobLimits, Limit, NoExchange, Pool, Program, Protections, Registry,
    Settings, serve,
};
use tokio::sync::Notify;

const MEMORY: u64 = 64 << 20;

type Test = (&'static str, fn() -> Result<()>);

const TESTS: &[Test] = &[
    ("protections_are_on_where_the_kernel_has_them", protections_are_on_where_the_kernel_has_them),
    ("a_job_is_bytes_in_and_bytes_out", a_job_is_bytes_in_and_bytes_out),
    ("a_worker_keeps_what_helps_with_the_next_job", a_worker_keeps_what_helps_with_the_next_job),
    ("a_job_can_ask_and_nothing_else", a_job_can_ask_and_nothing_else),
    ("a_job_has_no_network", a_job_has_no_network),
    ("a_job_reads_no_file_of_the_hub", a_job_reads_no_file_of_the_hub),
    ("a_job_has_a_scratch_folder_that_is_emptied", a_job_has_a_scratch_folder_that_is_emptied),
    ("a_job_starts_no_process", a_job_starts_no_process),
    ("a_job_signals_and_traces_nobody", a_job_signals_and_traces_nobody),
    ("a_job_can_have_threads", a_job_can_have_threads),
    ("a_job_has_no_environment_and_no_open_files", a_job_has_no_environment_and_no_open_files),
    ("a_job_that_takes_more_memory_is_ended", a_job_that_takes_more_memory_is_ended),
    ("room_for_mapped_files_is_none_for_memory", room_for_mapped_files_is_none_for_memory),
    ("a_job_that_never_ends_is_ended", a_job_that_never_ends_is_ended),
    ("a_job_that_sleeps_is_ended", a_job_that_sleeps_is_ended),
    ("a_job_that_floods_its_pipes_is_ended", a_job_that_floods_its_pipes_is_ended),
    ("a_job_that_breaks_the_protocol_is_ended", a_job_that_breaks_the_protocol_is_ended),
    ("a_job_that_writes_too_large_a_file_is_ended", a_job_that_writes_too_large_a_file_is_ended),
    ("a_job_that_fills_its_folder_is_ended", a_job_that_fills_its_folder_is_ended),
    ("there_is_room_for_a_result_before_it_is_read", there_is_room_for_a_result_before_it_is_read),
    ("a_job_that_panics_or_overflows_its_stack_is_named", a_job_that_panics_or_overflows_its_stack_is_named),
    ("a_worker_that_is_killed_harms_no_other_job", a_worker_that_is_killed_harms_no_other_job),
    ("a_worker_that_was_killed_while_idle_is_replaced", a_worker_that_was_killed_while_idle_is_replaced),
    ("workers_are_replaced_above_a_memory_mark", workers_are_replaced_above_a_memory_mark),
    ("workers_are_replaced_after_so_many_jobs", workers_are_replaced_after_so_many_jobs),
    ("who_gives_up_waiting_ends_the_job", who_gives_up_waiting_ends_the_job),
    ("workers_end_with_the_pool_and_with_its_process", workers_end_with_the_pool_and_with_its_process),
    ("what_cannot_be_started_is_told", what_cannot_be_started_is_told),
    ("a_reservation_is_held_while_a_worker_lives", a_reservation_is_held_while_a_worker_lives),
];

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match std::env::args().nth(1).as_deref() {
        Some("be-a-worker") => {
            arguments.next();
            return serve(arguments, registry());
        }
        Some("be-a-hub") => return be_a_hub(),
        Some("--list") => {
            for (name, _) in TESTS {
                println!("{name}: test");
            }
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let mut failed = 0;
    for (name, test) in
        TESTS.iter().filter(|(name, _)| filter.as_ref().is_none_or(|word| name.contains(word)))
    {
        // Those of the test before may still be on their way out.
        let outcome = std::panic::catch_unwind(|| {
            run(until("no worker is left of another test", || Ok(workers()?.is_empty())))?;
            test()
        });
        match outcome {
            Ok(Ok(())) => println!("test {name} ... ok"),
            Ok(Err(error)) => {
                failed += 1;
                println!("test {name} ... FAILED: {error:#}");
            }
            Err(_) => {
                failed += 1;
                println!("test {name} ... FAILED: it panicked");
            }
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

// What workers do.

fn registry() -> Registry {
    let mut seen = 0_u32;
    Registry::default()
        .with("echo", |_, input| input)
        .with("count", move |_, _| {
            seen += 1;
            format!("{} {seen}", std::process::id()).into_bytes()
        })
        .with("ask", |context, input| {
            let mut out = Vec::new();
            for question in input.split(|byte| *byte == b' ') {
                match context.ask(question) {
                    // Only a part of what comes: the rest is discarded.
                    Ok(answer) => drop(answer.take(3).read_to_end(&mut out)),
                    Err(error) => out.extend_from_slice(format!("[{error}]").as_bytes()),
                }
            }
            out
        })
        .with("misdeed", |context, input| {
            misdeed(context.scratch(), &String::from_utf8_lossy(&input)).into_bytes()
        })
        .with("write", |_, input| {
            use std::io::Write as _;
            std::io::stdout().write_all(&input).ok();
            std::io::stdout().flush().ok();
            input
        })
}

/// Tries something that a job should not be able to do, and tells how it went.
fn misdeed(scratch: &Path, what: &str) -> String {
    let (verb, object) = what.split_once(' ').unwrap_or((what, ""));
    let tell = |result: std::io::Result<String>| match result {
        Ok(text) => format!("done: {text}"),
        Err(error) => format!("refused: {:?}", error.kind()),
    };
    match verb {
        "connect" => tell(std::net::TcpStream::connect(object).map(|_| String::new())),
        "listen" => tell(std::net::TcpListener::bind("127.0.0.1:0").map(|_| String::new())),
        "datagram" => tell(std::net::UdpSocket::bind("127.0.0.1:0").map(|_| String::new())),
        "unix" => tell(std::os::unix::net::UnixStream::connect(object).map(|_| String::new())),
        "pair" => tell(std::os::unix::net::UnixStream::pair().map(|_| String::new())),
        "read" => tell(std::fs::read_to_string(object)),
        "create" => tell(std::fs::write(object, "x").map(|()| String::new())),
        "list" => tell(std::fs::read_dir(object).map(|entries| entries.count().to_string())),
        "link" => {
            let link = scratch.join("link");
            tell(std::fs::hard_link(object, &link).and_then(|()| std::fs::read_to_string(link)))
        }
        "symlink" => {
            let link = scratch.join("symlink");
            let made = std::os::unix::fs::symlink(object, &link);
            tell(made.and_then(|()| std::fs::read_to_string(link)))
        }
        "scratch" => {
            let left = std::fs::read_dir(scratch).map_or(99, Iterator::count);
            let folder = scratch.join("a/b");
            let written = std::fs::create_dir_all(&folder)
                .and_then(|()| std::fs::write(folder.join("one"), "content"))
                .and_then(|()| std::fs::rename(folder.join("one"), scratch.join("two")))
                .and_then(|()| std::fs::read_to_string(scratch.join("two")));
            format!("{left} {}", tell(written))
        }
        "run" => tell(std::process::Command::new(object).output().map(|_| String::new())),
        "fork" => {
            // `vfork` and `posix_spawn` come to the same system call; a second way is the C library's own.
            tell(std::process::Command::new("/proc/self/exe").spawn().map(|_| String::new()))
        }
        "signal" => {
            let pid = object.parse().ok().and_then(rustix::process::Pid::from_raw);
            let sent = pid.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::TERM));
            tell(sent.unwrap_or(Ok(())).map(|()| String::new()).map_err(Into::into))
        }
        "memory-of" => tell(std::fs::read(format!("/proc/{object}/mem")).map(|_| String::new())),
        "privileges" => tell(
            rustix::process::setrlimit(
                rustix::process::Resource::As,
                rustix::process::Rlimit { current: None, maximum: None },
            )
            .map(|()| String::new())
            .map_err(Into::into),
        ),
        "threads" => {
            let threads: Vec<_> = (0..3).map(|n| std::thread::spawn(move || n)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or(9).to_string()).collect()
        }
        "environment" => std::env::vars().map(|(key, _)| key).collect::<Vec<_>>().join(" "),
        "files" => {
            // Landlock keeps /proc out of reach; but of 64 numbers, those that can still be had are free.
            let path = scratch.join("file");
            let opened = std::iter::repeat_with(|| std::fs::File::create(&path)).map_while(Result::ok);
            let opened: Vec<_> = opened.collect();
            opened.len().to_string()
        }
        "allocate" => {
            let bytes = vec![1_u8; object.parse().unwrap_or(0)];
            format!("done: {}", bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>())
        }
        "keep" => {
            std::mem::forget(vec![1_u8; object.parse().unwrap_or(0)]);
            String::new()
        }
        "small" => {
            let mut kept: Vec<Box<[u8; 100]>> = Vec::new();
            loop {
                kept.push(Box::new([1; 100]));
            }
        }
        "loop" => {
            let mut number = 1_u64;
            loop {
                number = std::hint::black_box(number.wrapping_mul(3));
            }
        }
        "sleep" => {
            std::thread::sleep(Duration::from_secs(3600));
            String::new()
        }
        "flood" => {
            use std::io::Write as _;
            let line = [b'x'; 1000];
            loop {
                let _ = if object == "stderr" {
                    std::io::stderr().write_all(&line)
                } else {
                    std::io::stdout().write_all(&line)
                };
            }
        }
        "file" => {
            use std::io::Write as _;
            let mut file = std::fs::File::create(scratch.join("large")).ok();
            loop {
                if let Some(file) = &mut file
                    && let Err(error) = file.write_all(&[0; 1 << 16])
                {
                    return format!("refused: {:?}", error.kind());
                }
            }
        }
        "fill" => {
            // In files that are each smaller than a file may be.
            for number in 0.. {
                if let Err(error) = std::fs::write(scratch.join(number.to_string()), vec![0; 512 << 10]) {
                    return format!("refused: {:?}", error.kind());
                }
            }
            String::new()
        }
        "litter" => {
            for number in 0.. {
                let folder = scratch.join(number.to_string());
                if let Err(error) = std::fs::create_dir_all(folder.join("a/b")) {
                    return format!("refused: {:?}", error.kind());
                }
            }
            String::new()
        }
        "hide" => {
            use std::io::Write as _;
            // Files that nobody finds in the folder.
            let files = (0..8).map(|_| {
                let mut file = std::fs::File::create(scratch.join("hidden"))?;
                std::fs::remove_file(scratch.join("hidden"))?;
                file.write_all(&vec![0; 512 << 10])?;
                Ok(file)
            });
            let files: std::io::Result<Vec<_>> = files.collect();
            std::thread::sleep(Duration::from_secs(3600));
            format!("{files:?}")
        }
        "panic" => panic!("with a secret"),
        "overflow" => deeper(0).to_string(),
        "close" => {
            let _ = nix::unistd::close(1);
            std::thread::sleep(Duration::from_secs(3600));
            String::new()
        }
        other => panic!("no such misdeed: {other}"),
    }
}

#[expect(unconditional_recursion, reason = "that is what is tried")]
fn deeper(depth: u64) -> u64 {
    let room = std::hint::black_box([depth; 64]);
    deeper(depth + 1) + std::hint::black_box(room[3])
}

// The tests.

fn run<T>(test: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(240), test).await.context("the test took too long")?
    })
}

fn program() -> Result<Program> {
    Ok(Program::this("test-worker", "be-a-worker")?)
}

fn pool() -> Result<Pool> {
    Ok(Pool::new(program()?, Settings { memory: MEMORY, recycle_above: 1 << 30, ..Settings::default() }))
}

fn job(kind: &'static str, input: &str) -> Job {
    // Only what a test is about ends its job.
    let limits = JobLimits {
        cpu: Duration::from_secs(120),
        wall: Duration::from_secs(120),
        output: 32 << 20,
        question: 1 << 20,
    };
    Job { kind, input: input.as_bytes().to_vec(), affinity: None, limits }
}

async fn tried(pool: &Pool, what: &str) -> Result<String> {
    let out = pool.run(job("misdeed", what), &mut NoExchange).await?;
    Ok(String::from_utf8(out)?)
}

async fn refused(pool: &Pool, what: &str) -> Result<()> {
    let told = tried(pool, what).await?;
    ensure!(told.starts_with("refused"), "{what}: {told}");
    Ok(())
}

async fn still_works(pool: &Pool) -> Result<()> {
    let out = pool.run(job("echo", "well"), &mut NoExchange).await.context("the next job")?;
    ensure!(out == b"well", "the next job gave {out:?}");
    Ok(())
}

/// What this kernel has, asked without the pool.
fn kernel_has_seccomp() -> bool {
    Path::new("/proc/sys/kernel/seccomp/actions_avail").exists()
}

fn kernel_has_landlock() -> bool {
    // No file says so everywhere; a ruleset that is not applied tells.
    use landlock::{ABI, Access as _, AccessFs, CompatLevel, Compatible as _, Ruleset, RulesetAttr as _};
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1))
        .is_ok_and(|ruleset| ruleset.create().is_ok())
}

async fn protections(pool: &Pool) -> Result<Protections> {
    Ok(pool.protections().await?)
}

fn protections_are_on_where_the_kernel_has_them() -> Result<()> {
    run(async {
        let on = protections(&pool()?).await?;
        println!("here: {on}");
        ensure!(on.no_new_privileges && on.first_to_go, "{on}");
        ensure!(on.seccomp == kernel_has_seccomp(), "{on}");
        ensure!((on.files != FileAccess::Open) == kernel_has_landlock(), "{on}");
        Ok(())
    })
}

fn a_job_is_bytes_in_and_bytes_out() -> Result<()> {
    run(async {
        let pool = pool()?;
        for length in [0, 1, 70_000, 5_000_000] {
            let mut asked = job("echo", "");
            asked.input = (0..length).map(|n| (n % 251) as u8).collect();
            let out = pool.run(asked.clone(), &mut NoExchange).await?;
            ensure!(out == asked.input, "{length} bytes came back as {}", out.len());
        }
        ensure!(pool.started() == 1, "{} workers for jobs one after the other", pool.started());
        Ok(())
    })
}

fn a_worker_keeps_what_helps_with_the_next_job() -> Result<()> {
    run(async {
        let pool = pool()?;
        let about = |what: u8| Job { affinity: Some([what; 32]), ..job("count", "") };
        // Two at once, so that there are two workers.
        let (mut one, mut other) = (NoExchange, NoExchange);
        let slow = Job { affinity: Some([1; 32]), ..job("echo", &"x".repeat(8 << 20)) };
        let (first, second) = tokio::join!(pool.run(slow, &mut one), pool.run(about(2), &mut other));
        first?;
        second?;
        let mut pids = std::collections::BTreeMap::<u8, Vec<String>>::new();
        for what in [1, 2, 1, 1, 2] {
            let out = String::from_utf8(pool.run(about(what), &mut NoExchange).await?)?;
            let pid = out.split(' ').next().unwrap_or_default().to_owned();
            pids.entry(what).or_default().push(pid);
        }
        for (what, mut pids) in pids {
            pids.dedup();
            ensure!(pids.len() == 1, "jobs about {what} went to several workers: {pids:?}");
        }
        Ok(())
    })
}

struct Library;

impl Exchange for Library {
    async fn answer(&mut self, question: Vec<u8>) -> Result<Bytes, String> {
        match question.as_slice() {
            b"short" => Ok(Bytes::from_static(b"abc")),
            b"empty" => Ok(Bytes::new()),
            b"long" => Ok(Bytes::from(vec![b'l'; 3 << 20])),
            _ => Err("not in here".to_owned()),
        }
    }
}

/// Tells that it is asked, and never answers.
struct Closed(Arc<Notify>);

impl Exchange for Closed {
    async fn answer(&mut self, _question: Vec<u8>) -> Result<Bytes, String> {
        self.0.notify_one();
        std::future::pending().await
    }
}

fn a_job_can_ask_and_nothing_else() -> Result<()> {
    run(async {
        let pool = pool()?;
        let out = pool.run(job("ask", "short long empty other short long"), &mut Library).await?;
        ensure!(out == b"abclll[not in here]abclll", "{}", String::from_utf8_lossy(&out));
        let out = pool.run(job("ask", "short"), &mut NoExchange).await?;
        ensure!(out == b"[this job may ask nothing]", "{}", String::from_utf8_lossy(&out));
        let mut long = job("ask", &"q".repeat(1000));
        long.limits.question = 999;
        let error = pool.run(long, &mut Library).await.err().context("a question that is too long")?;
        ensure!(matches!(error, JobError::Limit(Limit::Question(999))), "{error:?}");
        still_works(&pool).await
    })
}

fn a_job_has_no_network() -> Result<()> {
    run(async {
        let pool = pool()?;
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        let folder = tempfile::tempdir()?;
        let socket = folder.path().join("socket");
        let _unix = std::os::unix::net::UnixListener::bind(&socket)?;
        let address = listener.local_addr()?;
        for what in [format!("connect {address}"), format!("unix {}", socket.display())] {
            refused(&pool, &what).await?;
        }
        for what in ["listen", "datagram", "pair"] {
            refused(&pool, what).await?;
        }
        Ok(())
    })
}

fn a_job_reads_no_file_of_the_hub() -> Result<()> {
    run(async {
        let pool = pool()?;
        let folder = tempfile::tempdir()?;
        let key = folder.path().join("hub.key");
        std::fs::write(&key, "the key")?;
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600))?;
        ensure!(
            kernel_has_landlock() == (protections(&pool).await?.files != FileAccess::Open),
            "Landlock is there and not used"
        );
        if !kernel_has_landlock() {
            bail!("this kernel has no Landlock: this cannot be tested here");
        }
        let key = key.display().to_string();
        for verb in ["read", "create", "link", "symlink"] {
            refused(&pool, &format!("{verb} {key}")).await?;
        }
        for what in ["read /proc/self/environ", "read /etc/passwd", "list /", "list /proc", "list .."] {
            refused(&pool, what).await?;
        }
        refused(&pool, &format!("create {}/new", folder.path().display())).await?;
        refused(&pool, &format!("memory-of {}", std::process::id())).await
    })
}

fn a_job_has_a_scratch_folder_that_is_emptied() -> Result<()> {
    run(async {
        let place = tempfile::tempdir()?;
        let settings = Settings { scratch: Some(place.path().to_owned()), ..pool()?.settings().clone() };
        let pool = Pool::new(program()?, settings);
        for _ in 0..2 {
            let told = tried(&pool, "scratch").await?;
            ensure!(told == "0 done: content", "{told}");
        }
        ensure!(std::fs::read_dir(place.path())?.count() == 1, "one worker has one folder");
        drop(pool);
        ensure!(std::fs::read_dir(place.path())?.count() == 0, "the folder goes with the worker");
        Ok(())
    })
}

fn a_job_starts_no_process() -> Result<()> {
    run(async {
        let pool = pool()?;
        for what in ["run /bin/true", "run /bin/sh", "fork"] {
            refused(&pool, what).await?;
        }
        Ok(())
    })
}

fn a_job_signals_and_traces_nobody() -> Result<()> {
    run(async {
        let pool = pool()?;
        refused(&pool, &format!("signal {}", std::process::id())).await?;
        refused(&pool, "privileges").await
    })
}

fn a_job_can_have_threads() -> Result<()> {
    run(async {
        let told = tried(&pool()?, "threads").await?;
        ensure!(told == "012", "{told}");
        Ok(())
    })
}

fn a_job_has_no_environment_and_no_open_files() -> Result<()> {
    // Open to children, as a shell leaves files to the programs that it starts.
    let leaked = std::fs::File::open("/proc/self/exe")?;
    let number = rustix::io::fcntl_dupfd_cloexec(&leaked, 30)?;
    rustix::io::fcntl_setfd(&number, rustix::io::FdFlags::empty())?;
    run(async {
        let pool = pool()?;
        let variables = tried(&pool, "environment").await?;
        ensure!(variables.is_empty(), "{variables}");
        let files = tried(&pool, "files").await?;
        ensure!(files == "61", "{files} of 64 files could be opened, besides the three pipes");
        Ok(())
    })
}

fn a_job_that_takes_more_memory_is_ended() -> Result<()> {
    run(async {
        let pool = pool()?;
        let half = tried(&pool, &format!("allocate {}", MEMORY / 2)).await?;
        ensure!(half.starts_with("done"), "{half}");
        for what in [format!("allocate {}", MEMORY * 2), "small".to_owned()] {
            let error = pool.run(job("misdeed", &what), &mut NoExchange).await.err().context("no error")?;
            ensure!(matches!(error, JobError::Limit(Limit::Memory(MEMORY))), "{what}: {error:?}");
            ensure!(error.is_of_the_job() && error.to_string().contains("64 MiB"), "{error}");
            still_works(&pool).await?;
        }
        Ok(())
    })
}

fn room_for_mapped_files_is_none_for_memory() -> Result<()> {
    run(async {
        let settings = Settings { memory: MEMORY, mapped: 1 << 30, ..Settings::default() };
        let pool = Pool::new(program()?, settings);
        let half = tried(&pool, &format!("allocate {}", MEMORY / 2)).await?;
        ensure!(half.starts_with("done"), "{half}");
        for what in [format!("allocate {}", MEMORY * 2), "small".to_owned()] {
            let error = pool.run(job("misdeed", &what), &mut NoExchange).await.err().context("no error")?;
            ensure!(matches!(error, JobError::Limit(Limit::Memory(MEMORY))), "{what}: {error:?}");
        }
        Ok(())
    })
}

fn a_job_that_never_ends_is_ended() -> Result<()> {
    run(async {
        let pool = pool()?;
        let mut endless = job("misdeed", "loop");
        endless.limits.cpu = Duration::from_millis(300);
        let error = pool.run(endless, &mut NoExchange).await.err().context("it ended")?;
        ensure!(matches!(error, JobError::Limit(Limit::Cpu(_))) && error.is_of_the_job(), "{error:?}");
        still_works(&pool).await
    })
}

fn a_job_that_sleeps_is_ended() -> Result<()> {
    run(async {
        let pool = pool()?;
        for what in ["sleep", "close"] {
            let mut asleep = job("misdeed", what);
            asleep.limits.wall = Duration::from_secs(2);
            let error = pool.run(asleep, &mut NoExchange).await.err().context("it ended")?;
            let expected = match what {
                "sleep" => matches!(error, JobError::Limit(Limit::Wall(_))) && !error.is_of_the_job(),
                _ => matches!(error, JobError::Protocol(_) | JobError::Limit(Limit::Wall(_))),
            };
            ensure!(expected, "{what}: {error:?}");
            still_works(&pool).await?;
        }
        Ok(())
    })
}

fn a_job_that_floods_its_pipes_is_ended() -> Result<()> {
    run(async {
        let pool = pool()?;
        let error =
            pool.run(job("misdeed", "flood stdout"), &mut NoExchange).await.err().context("it ended")?;
        ensure!(matches!(error, JobError::Protocol(_)), "{error:?}");
        let error =
            pool.run(job("misdeed", "flood stderr"), &mut NoExchange).await.err().context("it ended")?;
        ensure!(matches!(error, JobError::Limit(Limit::StandardError(_))), "{error:?}");
        // A result that is well formed and too large.
        let mut large = job("echo", &"x".repeat(3 << 20));
        large.limits.output = 2 << 20;
        let error = pool.run(large, &mut NoExchange).await.err().context("it ended")?;
        ensure!(matches!(error, JobError::Limit(Limit::Output(_))), "{error:?}");
        still_works(&pool).await
    })
}

fn a_job_that_breaks_the_protocol_is_ended() -> Result<()> {
    run(async {
        let pool = pool()?;
        // A result before the result, a job, an answer, a frame without a tag, one that is larger than frames are.
        for bytes in ["\u{2}", "\u{4}\0\0\0\0", "\u{7f}\0\0\0\0", "\u{6}\u{7f}\u{7f}\u{7f}\u{7f}"] {
            let error = pool.run(job("write", bytes), &mut NoExchange).await;
            let error = error.err().with_context(|| format!("{bytes:?} was taken"))?;
            ensure!(matches!(error, JobError::Protocol(_)) && error.is_of_the_job(), "{bytes:?}: {error:?}");
            still_works(&pool).await?;
        }
        Ok(())
    })
}

fn a_job_that_writes_too_large_a_file_is_ended() -> Result<()> {
    run(async {
        let settings = Settings { file_size: 1 << 20, ..pool()?.settings().clone() };
        let pool = Pool::new(program()?, settings);
        let error = pool.run(job("misdeed", "file"), &mut NoExchange).await.err().context("it ended")?;
        ensure!(matches!(error, JobError::Limit(Limit::FileSize(_))), "{error:?}");
        still_works(&pool).await
    })
}

fn a_job_that_fills_its_folder_is_ended() -> Result<()> {
    run(async {
        let settings = Settings { file_size: 1 << 20, scratch_size: 3 << 20, ..pool()?.settings().clone() };
        let pool = Pool::new(program()?, settings);
        let error = pool.run(job("misdeed", "fill"), &mut NoExchange).await.err().context("it ended")?;
        // The look finds either first: too much in them, or too many.
        let full = matches!(error, JobError::Limit(Limit::Scratch(_) | Limit::ScratchFiles(_)));
        ensure!(full && error.is_of_the_job(), "{error:?}");
        let error = pool.run(job("misdeed", "litter"), &mut NoExchange).await.err().context("it ended")?;
        let littered = matches!(error, JobError::Limit(Limit::Scratch(_) | Limit::ScratchFiles(_)));
        ensure!(littered, "{error:?}");
        // What was removed and is still open is seen by root alone.
        if rustix::process::geteuid().is_root() {
            let error = pool.run(job("misdeed", "hide"), &mut NoExchange).await.err().context("it ended")?;
            ensure!(matches!(error, JobError::Limit(Limit::Scratch(_))), "{error:?}");
        } else {
            println!("NOT RUN without root: a job that hides its files");
        }
        still_works(&pool).await
    })
}

/// Has room for small results, and counts how often it was asked.
struct Narrow(usize);

impl Exchange for Narrow {
    async fn answer(&mut self, _question: Vec<u8>) -> Result<Bytes, String> {
        Err("nothing".to_owned())
    }

    async fn room(&mut self, bytes: u64) -> Result<(), u64> {
        self.0 += 1;
        if bytes > 1000 { Err(1000) } else { Ok(()) }
    }
}

fn there_is_room_for_a_result_before_it_is_read() -> Result<()> {
    run(async {
        let pool = pool()?;
        let mut narrow = Narrow(0);
        let out = pool.run(job("echo", &"x".repeat(1000)), &mut narrow).await?;
        ensure!(out.len() == 1000 && narrow.0 == 1, "{} bytes, asked {} times", out.len(), narrow.0);
        let error = pool.run(job("echo", &"x".repeat(1001)), &mut narrow).await.err().context("too large")?;
        ensure!(matches!(error, JobError::Limit(Limit::Output(1000))), "{error:?}");
        // One that says less than it sends, more, something else, or says it twice.
        let size = |bytes: u64| [&[0x87, 8, 0, 0, 0][..], &bytes.to_le_bytes()].concat();
        let done = [0x86, 2, 0, 0, 0, b'o', b'k'];
        let odd = [
            [&size(1)[..], &done].concat(),
            [&size(3)[..], &done].concat(),
            [&size(2)[..], &size(2), &done].concat(),
            [&[0x87, 1, 0, 0, 0, 2][..], &done].concat(),
            done.to_vec(),
        ];
        for bytes in odd {
            let error = pool.run(Job { input: bytes.clone(), ..job("write", "") }, &mut Narrow(0)).await;
            let error = error.err().with_context(|| format!("{bytes:?} was taken"))?;
            ensure!(matches!(error, JobError::Protocol(_)), "{bytes:?}: {error:?}");
        }
        still_works(&pool).await
    })
}

fn a_job_that_panics_or_overflows_its_stack_is_named() -> Result<()> {
    run(async {
        let pool = pool()?;
        let error = pool.run(job("misdeed", "panic"), &mut NoExchange).await.err().context("it ended")?;
        let text = error.to_string();
        ensure!(text.contains("a panic at") && text.contains("pool.rs"), "{text}");
        ensure!(!text.contains("secret") && error.is_of_the_job(), "{text}");
        let error = pool.run(job("misdeed", "overflow"), &mut NoExchange).await.err().context("it ended")?;
        ensure!(matches!(error, JobError::Crashed(_)), "{error:?}");
        still_works(&pool).await
    })
}

/// Children of this process that are workers.
fn workers() -> Result<Vec<u32>> {
    children_of(std::process::id())
}

fn children_of(parent: u32) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((_, rest)) = stat.rsplit_once(')') else { continue };
        let mut fields = rest.split_ascii_whitespace();
        let (state, parent_of) = (fields.next(), fields.next());
        if state != Some("Z") && parent_of.and_then(|text| text.parse().ok()) == Some(parent) {
            found.push(pid);
        }
    }
    Ok(found)
}

fn kill(pid: u32) -> Result<()> {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid)?).context("a pid")?;
    Ok(rustix::process::kill_process(pid, rustix::process::Signal::KILL)?)
}

async fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds()? {
        ensure!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

fn a_worker_that_is_killed_harms_no_other_job() -> Result<()> {
    run(async {
        let pool = pool()?;
        let at_work = Arc::new(Notify::new());
        let waiting = {
            let (pool, mut library) = (pool.clone(), Closed(Arc::clone(&at_work)));
            tokio::spawn(async move { pool.run(job("ask", "anything"), &mut library).await })
        };
        // A worker that is killed before it has begun is another error.
        at_work.notified().await;
        let victim = workers()?;
        ensure!(victim.len() == 1, "{victim:?}");
        // The other worker goes on while the first is killed.
        let other = {
            let pool = pool.clone();
            tokio::spawn(async move {
                for _ in 0..50 {
                    pool.run(job("echo", &"x".repeat(100_000)), &mut NoExchange).await?;
                }
                Ok::<_, JobError>(())
            })
        };
        until("two workers", || Ok(workers()?.len() == 2)).await?;
        for pid in victim {
            kill(pid)?;
        }
        let error = waiting.await?.err().context("its job ended well")?;
        ensure!(matches!(error, JobError::Killed(_)) && !error.is_of_the_job(), "{error:?}");
        other.await??;
        still_works(&pool).await
    })
}

fn a_worker_that_was_killed_while_idle_is_replaced() -> Result<()> {
    run(async {
        let pool = pool()?;
        still_works(&pool).await?;
        let [pid] = workers()?[..] else { bail!("one worker") };
        kill(pid)?;
        until("it is gone", || Ok(workers()?.is_empty())).await?;
        still_works(&pool).await?;
        ensure!(pool.started() == 2);
        Ok(())
    })
}

fn workers_are_replaced_above_a_memory_mark() -> Result<()> {
    run(async {
        let settings = Settings { recycle_above: 24 << 20, ..pool()?.settings().clone() };
        let pool = Pool::new(program()?, settings);
        tried(&pool, "keep 1000").await?;
        still_works(&pool).await?;
        ensure!(pool.started() == 1, "a small worker was replaced");
        tried(&pool, &format!("keep {}", 32 << 20)).await?;
        until("the large one is gone", || Ok(workers()?.is_empty())).await?;
        still_works(&pool).await?;
        ensure!(pool.started() == 2, "{} were started", pool.started());
        Ok(())
    })
}

fn workers_are_replaced_after_so_many_jobs() -> Result<()> {
    run(async {
        let settings = Settings { jobs_per_worker: 3, ..pool()?.settings().clone() };
        let pool = Pool::new(program()?, settings);
        for _ in 0..7 {
            still_works(&pool).await?;
        }
        ensure!(pool.started() == 3, "{} were started", pool.started());
        Ok(())
    })
}

fn who_gives_up_waiting_ends_the_job() -> Result<()> {
    run(async {
        let pool = pool()?;
        let mut nothing = NoExchange;
        let endless = pool.run(job("misdeed", "loop"), &mut nothing);
        let given_up = tokio::time::timeout(Duration::from_millis(500), endless).await;
        ensure!(given_up.is_err(), "it ended");
        until("the worker is gone", || Ok(workers()?.is_empty())).await?;
        still_works(&pool).await
    })
}

/// What the next test kills: a process with a pool and an endless job.
fn be_a_hub() -> ExitCode {
    let outcome = run(async {
        let pool = pool()?;
        pool.run(job("misdeed", "loop"), &mut NoExchange).await?;
        Ok(())
    });
    if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn workers_end_with_the_pool_and_with_its_process() -> Result<()> {
    run(async {
        let first = pool()?;
        still_works(&first).await?;
        ensure!(workers()?.len() == 1);
        drop(first);
        until("workers are gone", || Ok(workers()?.is_empty())).await
    })?;
    // One that is busy would not notice that its pipe is closed.
    let mut hub = std::process::Command::new("/proc/self/exe").arg("be-a-hub").spawn()?;
    let mut worker = None;
    run(async {
        until("the other process has a worker at its job", || {
            worker = children_of(hub.id())?.first().copied();
            Ok(worker.is_some_and(burns))
        })
        .await
    })?;
    let worker = worker.context("a worker")?;
    hub.kill()?;
    hub.wait()?;
    run(async {
        until("its worker is gone", || {
            let stat = std::fs::read_to_string(format!("/proc/{worker}/stat")).unwrap_or_default();
            Ok(stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('Z')))
        })
        .await
    })
}

/// Whether a process has used CPU time for a while.
fn burns(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let ticks: Option<u64> =
        stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(11)?.parse().ok());
    ticks.is_some_and(|ticks| ticks > 10)
}

fn what_cannot_be_started_is_told() -> Result<()> {
    run(async {
        let missing = Program { path: "/no/such/program".into(), name: "x".into(), arguments: vec![] };
        let pool = Pool::new(missing, Settings::default());
        let error = pool.run(job("echo", ""), &mut NoExchange).await.err().context("it started")?;
        ensure!(matches!(error, JobError::Start(_)) && !error.is_of_the_job(), "{error:?}");
        // A program that is none: it ends, or says something else.
        let other = Program {
            path: "/bin/echo".into(),
            name: "x".into(),
            arguments: vec![OsString::from("something else")],
        };
        let pool = Pool::new(other, Settings::default());
        let error = pool.run(job("echo", ""), &mut NoExchange).await.err().context("it started")?;
        ensure!(matches!(error, JobError::Start(_)), "{error:?}");
        Ok(())
    })
}

fn a_reservation_is_held_while_a_worker_lives() -> Result<()> {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    struct Taken(Arc<AtomicU64>, u64);
    impl Drop for Taken {
        fn drop(&mut self) {
            self.0.fetch_sub(self.1, Ordering::SeqCst);
        }
    }
    run(async {
        let taken = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&taken);
        let reserve: roadstead_worker::Reserve = Arc::new(move |bytes| {
            counter.fetch_add(bytes, Ordering::SeqCst);
            let taken = Taken(Arc::clone(&counter), bytes);
            Box::pin(async move { Box::new(taken) as roadstead_worker::Reservation })
        });
        let pool = Pool::new(program()?, Settings { reserve: Some(reserve), ..pool()?.settings().clone() });
        still_works(&pool).await?;
        still_works(&pool).await?;
        ensure!(taken.load(Ordering::SeqCst) == MEMORY, "one worker is one reservation");
        let _ = pool.run(job("misdeed", "panic"), &mut NoExchange).await;
        ensure!(taken.load(Ordering::SeqCst) == 0, "it goes with the worker");
        Ok(())
    })
}
