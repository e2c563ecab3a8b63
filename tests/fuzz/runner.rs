//! Runs a target: chooses its inputs and duration, and saves the input of a failure for replay.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::hash::{BuildHasher as _, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Duration;

use tokio::time::Instant;

use crate::mutate::Mutator;

/// Maximum duration of one input, on a busy machine too.
const INPUT_DURATION_MAX: Duration = Duration::from_secs(30);

/// A target and the number of inputs in `make test`.
pub struct FuzzTarget {
    pub name: &'static str,
    pub short_runs: u64,
}

thread_local! {
    /// Panic messages of this thread, including those of tasks that catch panics.
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

impl FuzzTarget {
    /// Runs the file, the seed or the duration that the environment variables name, or the short run.
    pub fn run(&self, mut target: impl FnMut(&[u8])) {
        record_panics();
        let mutator = Mutator::new(examples(self.name).into_iter().map(|(_, example)| example).collect());
        if let Some(file) = std::env::var_os("S3O_FUZZ_INPUT") {
            let input = std::fs::read(&file).expect("S3O_FUZZ_INPUT names a file");
            return self.attempt(&mut target, &input, None);
        }
        if let Some(seed) = number("S3O_FUZZ_SEED") {
            return self.attempt(&mut target, &mutator.input(seed), Some(seed));
        }
        let began = Instant::now();
        let (first, runs, until) = match number("S3O_FUZZ_SECONDS") {
            // The hasher is seeded by the system, so that every run starts at another seed.
            Some(seconds) => {
                (RandomState::new().hash_one(self.name) >> 1, u64::MAX >> 1, began + Duration::from_secs(seconds))
            }
            None => (0, self.short_runs, began + Duration::from_hours(1)),
        };
        let mut done: u32 = 0;
        for seed in first..first.saturating_add(runs) {
            if Instant::now() >= until {
                break;
            }
            self.attempt(&mut target, &mutator.input(seed), Some(seed));
            done += 1;
        }
        let seconds = began.elapsed().as_secs_f64();
        println!("{}: {done} runs, {:.0} a second", self.name, f64::from(done) / seconds);
    }

    fn attempt(&self, target: &mut impl FnMut(&[u8]), input: &[u8], seed: Option<u64>) {
        let began = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| target(input)));
        let panics = PANICS.with(RefCell::take);
        let took = began.elapsed();
        if outcome.is_ok() && panics.is_empty() && took < INPUT_DURATION_MAX {
            return;
        }
        let saved = self.save(input, seed);
        let replay = match seed {
            Some(seed) => format!("S3O_FUZZ_SEED={seed}"),
            None => "S3O_FUZZ_INPUT".to_owned(),
        };
        panic!(
            "{}: {replay} (input saved in {}) took {took:?}\n{}\ninput: {}",
            self.name,
            saved.display(),
            panics.join("\n"),
            escaped_start(input)
        );
    }

    fn save(&self, input: &[u8], seed: Option<u64>) -> PathBuf {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz");
        std::fs::create_dir_all(&folder).expect("create a folder");
        let path = folder.join(format!("{}-{}", self.name, seed.unwrap_or_default()));
        std::fs::write(&path, input).expect("save the input");
        path
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

/// The first bytes of an input, escaped.
fn escaped_start(input: &[u8]) -> String {
    input.iter().take(600).fold(String::new(), |mut text, byte| {
        write!(text, "{}", byte.escape_ascii()).expect("writing to a string does not fail");
        text
    })
}

fn record_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.with(|panics| panics.borrow_mut().push(info.to_string()));
            before(info);
        }));
    });
}

/// The examples of a target with their names: each file is one, and in `*.lines` each line is one.
pub fn examples(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut paths: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let bytes = std::fs::read(&path).expect("an example");
        if path.extension().is_some_and(|extension| extension == "lines") {
            let lines = bytes.split(|byte| *byte == b'\n').enumerate();
            found.extend(lines.map(|(number, line)| (format!("{name}:{}", number + 1), line.to_vec())));
        } else {
            found.push((name, bytes));
        }
    }
    assert!(!found.is_empty(), "{target} has no examples");
    found
}
