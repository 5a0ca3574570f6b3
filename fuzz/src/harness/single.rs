//! Runs one target in this process: first its corpus, then mutations until the time is over.

use std::{
    collections::HashSet,
    fmt, fs, io,
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use crate::{
    FuzzTarget, InputTrace,
    harness::{
        FuzzFolders, corpus,
        execute::{ExecutionCost, SOFT_LIMIT, execute},
        mutate::Mutator,
        shrink::shrink_input,
    },
};

/// The choices of one run.
#[derive(Debug, Clone)]
pub struct RunPlan {
    /// The seed of the mutations.
    pub seed: u64,
    /// The time for mutations.
    pub time: Duration,
    /// True if inputs with a new trace are added to the corpus.
    pub grow: bool,
}

/// What a run did.
#[derive(Debug, Clone, Default)]
pub struct RunTotals {
    /// The number of inputs that were run.
    pub executions: u64,
    /// The number of committed inputs.
    pub committed: usize,
    /// The number of inputs that are mutated further, committed or new.
    pub pool: usize,
    /// The number of inputs that took longer than they should.
    pub slow: u64,
    /// The longest processor time of an input.
    pub max_time: Duration,
    /// The most memory of an input.
    pub max_memory: usize,
    /// The number of inputs that were added to the corpus.
    pub added: usize,
}

/// A property that does not hold, with the input that shows it.
#[derive(Debug)]
pub struct FoundFailure {
    /// The property, or the message of the panic.
    pub problem: String,
    /// The file with the input.
    pub file: PathBuf,
    /// The number of the execution in the run.
    pub execution: u64,
}

/// A run of one target.
pub struct TargetRun<'a> {
    target: &'a FuzzTarget,
    folders: &'a FuzzFolders,
    current: CurrentInput,
    seen: HashSet<InputTrace>,
    pool: Vec<Vec<u8>>,
    totals: RunTotals,
}

/// The most inputs that are mutated further.
const MAX_POOL: usize = 4096;

impl<'a> TargetRun<'a> {
    /// Prepares a run.
    ///
    /// # Errors
    ///
    /// Fails if the working folder cannot be written.
    pub fn new(target: &'a FuzzTarget, folders: &'a FuzzFolders) -> io::Result<Self> {
        Ok(Self {
            target,
            folders,
            current: CurrentInput::create(target, folders)?,
            seen: HashSet::new(),
            pool: Vec::new(),
            totals: RunTotals::default(),
        })
    }

    /// Replays the corpus and runs mutations of it.
    ///
    /// # Errors
    ///
    /// Fails if files cannot be read or written; a property that does not hold is the inner error.
    pub fn run(mut self, plan: &RunPlan) -> io::Result<Result<RunTotals, FoundFailure>> {
        let folder = self.folders.corpus.join(self.target.name);
        let committed = corpus::load_inputs(&folder)?;
        self.totals.committed = committed.len();
        for input in [Vec::new()].into_iter().chain(committed) {
            if let Err(problem) = self.try_input(&input, false)? {
                return self.report(&input, problem).map(Err);
            }
        }
        let replayed = self.pool.len();
        let mut mutator = Mutator::new(plan.seed, self.target.words, self.target.max_bytes);
        let start = Instant::now();
        while start.elapsed() < plan.time {
            let base = mutator.choose_recent(self.pool.len());
            let other = mutator.choose_recent(self.pool.len());
            let input = mutator.make_input(&self.pool[base], &self.pool[other]);
            if let Err(problem) = self.try_input(&input, true)? {
                return self.report(&input, problem).map(Err);
            }
        }
        if plan.grow {
            self.totals.added = corpus::add_inputs(&folder, self.pool.split_off(replayed))?;
        }
        self.totals.pool = self.pool.len().max(replayed);
        Ok(Ok(self.totals))
    }

    /// Runs one input. It joins the pool if it is committed or its trace is new.
    fn try_input(&mut self, input: &[u8], only_if_new: bool) -> io::Result<Result<(), String>> {
        self.totals.executions += 1;
        self.current.write(input, self.totals.executions)?;
        let ExecutionCost {
            trace,
            time,
            peak_bytes,
        } = match execute(self.target, input) {
            Ok(cost) => cost,
            Err(problem) => return Ok(Err(problem)),
        };
        if time > SOFT_LIMIT.max(self.totals.max_time) {
            let folder = self.folders.work.join(self.target.name);
            fs::write(folder.join("slowest"), input)?;
        }
        self.totals.max_time = self.totals.max_time.max(time);
        self.totals.max_memory = self.totals.max_memory.max(peak_bytes);
        self.totals.slow += u64::from(time > SOFT_LIMIT);
        let is_new = self.seen.insert(trace);
        if (is_new && self.pool.len() < MAX_POOL) || !only_if_new {
            self.pool.push(input.to_vec());
        }
        Ok(Ok(()))
    }

    /// Shrinks a failing input and writes it to a file.
    fn report(&self, input: &[u8], problem: String) -> io::Result<FoundFailure> {
        let smallest = shrink_input(input, |shorter| execute(self.target, shorter).is_err());
        let problem = execute(self.target, &smallest).err().unwrap_or(problem);
        Ok(FoundFailure {
            problem,
            file: write_failure(self.target, self.folders, &smallest)?,
            execution: self.totals.executions,
        })
    }
}

/// Writes a failing input to a file of its own and returns its path.
pub(super) fn write_failure(
    target: &FuzzTarget,
    folders: &FuzzFolders,
    input: &[u8],
) -> io::Result<PathBuf> {
    let folder = folders.work.join(target.name);
    fs::create_dir_all(&folder)?;
    let file = folder.join(format!("failure-{}", corpus::file_name(input)));
    fs::write(&file, input)?;
    Ok(file)
}

impl fmt::Display for RunTotals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>8} executions, corpus {:>3}, pool {:>4}, slowest {:>6.1} ms ({} over {} ms), memory {:>5} KB",
            self.executions,
            self.committed,
            self.pool,
            self.max_time.as_secs_f64() * 1000.0,
            self.slow,
            SOFT_LIMIT.as_millis(),
            self.max_memory / 1024,
        )
    }
}

/// The number of the input that is under way, for the watchdog.
pub(super) static UNDER_WAY: AtomicU64 = AtomicU64::new(0);

/// A file with the input that is under way: what is left of a process that a stack overflow, a
/// failed allocation or the watchdog has ended.
struct CurrentInput(fs::File);

impl CurrentInput {
    fn create(target: &FuzzTarget, folders: &FuzzFolders) -> io::Result<Self> {
        fs::create_dir_all(folders.work.join(target.name))?;
        fs::File::create(Self::path(target, folders)).map(Self)
    }

    fn path(target: &FuzzTarget, folders: &FuzzFolders) -> PathBuf {
        folders.work.join(target.name).join("current")
    }

    fn write(&mut self, input: &[u8], number: u64) -> io::Result<()> {
        // The length comes first, so that the file need not be truncated for each input.
        let mut content = (input.len() as u64).to_le_bytes().to_vec();
        content.extend_from_slice(input);
        self.0.write_all_at(&content, 0)?;
        UNDER_WAY.store(number, Ordering::Relaxed);
        Ok(())
    }
}

/// Reads the input that was under way when the process of the target ended.
pub(super) fn read_current(target: &FuzzTarget, folders: &FuzzFolders) -> Option<Vec<u8>> {
    let content = fs::read(CurrentInput::path(target, folders)).ok()?;
    let (length, rest) = content.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    rest.get(..length).map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders() -> (tempfile::TempDir, FuzzFolders) {
        let dir = tempfile::tempdir().expect("a folder");
        let folders = FuzzFolders {
            corpus: dir.path().join("corpus"),
            work: dir.path().join("work"),
        };
        (dir, folders)
    }

    fn plan(seed: u64) -> RunPlan {
        RunPlan {
            seed,
            time: Duration::from_secs(60),
            grow: false,
        }
    }

    const WORDY: FuzzTarget = FuzzTarget::new(
        "wordy",
        |input| {
            let count = |word: &[u8]| {
                input
                    .windows(word.len())
                    .filter(|part| *part == word)
                    .count()
            };
            assert!(count(b"magic") < 2, "two magic words");
            InputTrace::of(count(b"magic"))
        },
        &["magic"],
    );

    #[test]
    fn a_property_that_mutations_break_is_found_shrunk_and_written_to_a_file() {
        let (_dir, folders) = folders();
        let run = TargetRun::new(&WORDY, &folders).expect("a folder");
        let failure = run.run(&plan(1)).expect("files").expect_err("is found");
        assert!(failure.problem.contains("two magic words"));
        let input = fs::read(&failure.file).expect("is written");
        assert_eq!(input, b"magicmagic");
        assert!(read_current(&WORDY, &folders).is_some());
    }

    #[test]
    fn the_same_seed_fails_at_the_same_execution() {
        let (_dir, folders) = folders();
        let at = |seed| {
            let run = TargetRun::new(&WORDY, &folders).expect("a folder");
            let found = run.run(&plan(seed)).expect("files").expect_err("is found");
            found.execution
        };
        assert_eq!(at(5), at(5));
    }

    #[test]
    fn a_committed_input_is_replayed_before_any_mutation() {
        let (_dir, folders) = folders();
        let corpus = folders.corpus.join("wordy");
        fs::create_dir_all(&corpus).expect("a folder");
        fs::write(corpus.join("old-failure"), "magic magic").expect("a file");
        let run = TargetRun::new(&WORDY, &folders).expect("a folder");
        let failure = run.run(&plan(1)).expect("files").expect_err("is found");
        assert_eq!(failure.execution, 2, "after the empty input");
    }
}
