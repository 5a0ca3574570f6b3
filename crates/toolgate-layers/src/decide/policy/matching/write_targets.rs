//! Finds the files that a command writes and whose names cannot be read: targets of redirections and
//! operands of the programs that usually write files.
//!
//! What other programs write by themselves is not read: a compiler, a script, a formatter.

use crate::decide::policy::matching::{
    program_runners::lists,
    shell::{ScriptCommand, ShellWord, base_name},
};

/// A program that writes the files it names.
struct WritingProgram {
    names: &'static str,
    written: WrittenWords,
    /// Options whose value, in the same word or the next one, is no file that is written.
    other_values: &'static str,
}

/// The words of a program that name what it writes.
enum WrittenWords {
    /// All operands, and values of options.
    Operands,
    /// All operands but the script, if an option says that files are changed in place.
    InPlace,
    /// Values of these options. With one of the second list, operands count too.
    Options(&'static str, &'static str),
    /// Operands, unless one of these options says which file is written.
    OperandsWithout(&'static str),
    /// Values behind this beginning of a word.
    Prefix(&'static str),
    /// Operands after one of these commands of git, and after `--` of `checkout`.
    Git(&'static str),
}

const WRITING_PROGRAMS: &[WritingProgram] = &[
    writing(
        "tee sponge ln cp gcp mv rename shred",
        WrittenWords::Operands,
        "-S --suffix --mode",
    ),
    writing(
        "install ginstall",
        WrittenWords::Operands,
        "-m -o -g --mode --owner --group",
    ),
    writing(
        "touch",
        WrittenWords::Operands,
        "-d --date -t -r --reference",
    ),
    writing(
        "truncate",
        WrittenWords::Operands,
        "-s --size -r --reference",
    ),
    writing(
        "split csplit",
        WrittenWords::Operands,
        "-b --bytes -l --lines -n --number -C -a --suffix-length",
    ),
    writing(
        "rsync scp",
        WrittenWords::Operands,
        "-e --rsh --exclude --include --bwlimit -P -p --port --timeout -i -l -o",
    ),
    writing("patch", WrittenWords::Operands, "-p -F --strip --fuzz"),
    writing(
        "sed gsed perl ruby",
        WrittenWords::InPlace,
        "-e -f --expression --file -l -M -I",
    ),
    writing("dd", WrittenWords::Prefix("of="), ""),
    writing(
        "tar gtar bsdtar",
        WrittenWords::Options("-C --directory --one-top-level", ""),
        "",
    ),
    writing("unzip 7z 7za", WrittenWords::Options("-d -o", ""), ""),
    writing("sort gsort", WrittenWords::Options("-o --output", ""), ""),
    writing(
        "curl",
        WrittenWords::Options(
            "-o --output --output-dir -D --dump-header -c --cookie-jar --trace --trace-ascii --stderr --etag-save --hsts --libcurl",
            "-O --remote-name --remote-name-all -J --remote-header-name",
        ),
        "",
    ),
    writing(
        "wget",
        WrittenWords::OperandsWithout("-O --output-document"),
        "-U --user-agent --header -t --tries -T --timeout --user --password --post-data -e",
    ),
    writing("git", WrittenWords::Git("apply am restore mv"), "-c"),
];

const fn writing(
    names: &'static str,
    written: WrittenWords,
    other_values: &'static str,
) -> WritingProgram {
    WritingProgram {
        names,
        written,
        other_values,
    }
}

/// Returns the first piece of a text because of which it cannot be told which file it writes.
pub(crate) fn find_unread_target(commands: &[ScriptCommand]) -> Option<&str> {
    // After `cd "$X"` a plain name may be one in any directory.
    let mut moved: Option<&str> = None;
    for command in commands {
        let operands = written_words(command);
        let targets = || command.writes.iter().chain(operands.iter().copied());
        if let Some(unknown) = targets().find(|word| !word.certain) {
            return Some(&unknown.text);
        }
        if operands_are_passed(command) || has_unknown_program(command) {
            return command.words.first().map(|word| word.text.as_str());
        }
        if let Some(directory) = moved.filter(|_| targets().any(|word| is_relative(&word.text))) {
            return Some(directory);
        }
        if let Some(directory) = entered_directory(command) {
            moved = Some(directory.text.as_str()).filter(|_| !directory.certain);
        }
    }
    None
}

/// Returns the names of files that the commands write, as far as they are certain.
pub(crate) fn named_targets(commands: &[ScriptCommand]) -> impl Iterator<Item = &str> {
    let targets = |command| command_targets(command).into_iter();
    { commands.iter().flat_map(targets) }
        .filter(|word| word.certain)
        .flat_map(|word| possible_values(&word.text))
}

fn command_targets(command: &ScriptCommand) -> Vec<&ShellWord> {
    let written = written_words(command);
    command.writes.iter().chain(written).collect()
}

/// Returns what a word may name: itself, or the value in `of=file`, `--output=file`, `-ofile` and
/// `-sSofile`.
fn possible_values(word: &str) -> Vec<&str> {
    let is_cluster = word.starts_with('-') && !word.starts_with("--");
    match word.split_once('=') {
        Some((_, value)) => vec![value],
        None if is_cluster => {
            let ends = word.char_indices().skip(2).take(MAX_CLUSTER);
            ends.map(|(at, _)| &word[at..]).collect()
        }
        None => vec![word],
    }
}

/// The most letters of a word that are taken for options in front of a value.
const MAX_CLUSTER: usize = 16;

/// Checks whether a program that writes gets its operands from another one.
fn operands_are_passed(command: &ScriptCommand) -> bool {
    let passes = command.passes_unknown_words();
    let has_place = || command.words.iter().any(|word| word.text.contains("{}"));
    (passes || has_place())
        && find_writer(command).is_some_and(|(writer, words)| writer.writes(words))
}

/// Checks whether a shell decides which program gets words that it decides as well.
fn has_unknown_program(command: &ScriptCommand) -> bool {
    let is_unknown = |word: &ShellWord| !word.certain;
    let mut words = command.words.iter();
    words.next().is_some_and(is_unknown) && words.any(is_unknown)
}

fn entered_directory(command: &ScriptCommand) -> Option<&ShellWord> {
    let first = command
        .program()
        .filter(|name| lists("cd pushd chdir", name));
    let mut operands = command.words.iter().skip(1);
    first.and_then(|_| operands.find(|word| !word.text.starts_with('-')))
}

fn is_relative(path: &str) -> bool {
    !path.starts_with(['/', '~']) && !path.starts_with("$HOME") && !path.starts_with("$TMPDIR")
}

fn find_writer(command: &ScriptCommand) -> Option<(&'static WritingProgram, &[ShellWord])> {
    let find = |name: &str| { WRITING_PROGRAMS.iter() }.find(|program| lists(program.names, name));
    let words = command.find_program(|name| find(name).is_some())?;
    let (program, arguments) = words.split_first()?;
    let name = base_name(&program.text);
    find(&name).map(|writer| (writer, arguments))
}

/// Returns the arguments of a command that name what it writes.
fn written_words(command: &ScriptCommand) -> Vec<&ShellWord> {
    find_writer(command).map_or_else(Vec::new, |(writer, words)| writer.written_words(words))
}

impl WritingProgram {
    /// Checks whether the program writes files at all with these arguments.
    fn writes(&self, words: &[ShellWord]) -> bool {
        match &self.written {
            WrittenWords::InPlace => words.iter().any(is_in_place),
            WrittenWords::Git(commands) => words.iter().any(|word| lists(commands, &word.text)),
            WrittenWords::Prefix(start) => words.iter().any(|word| word.text.starts_with(start)),
            WrittenWords::Options(_, with_operands) => is_given(with_operands, words),
            WrittenWords::OperandsWithout(options) => !is_given(options, words),
            WrittenWords::Operands => true,
        }
    }

    fn written_words<'w>(&self, words: &'w [ShellWord]) -> Vec<&'w ShellWord> {
        match &self.written {
            WrittenWords::Operands => self.operands(words),
            WrittenWords::InPlace if words.iter().any(is_in_place) => {
                let script = usize::from(!is_given("-e -f --expression --file", words));
                self.operands(words).into_iter().skip(script).collect()
            }
            WrittenWords::InPlace => Vec::new(),
            WrittenWords::Options(options, with_operands) => {
                // `-oJ` is no `-J`, but both are looked at.
                let operands = is_given(with_operands, words).then(|| self.operands(words));
                let values = option_values(options, words);
                values.chain(operands.into_iter().flatten()).collect()
            }
            WrittenWords::OperandsWithout(options) if !is_given(options, words) => {
                self.operands(words)
            }
            WrittenWords::OperandsWithout(options) => option_values(options, words).collect(),
            WrittenWords::Prefix(start) => {
                let is_written = |word: &&ShellWord| {
                    word.text.starts_with(start) || !word.certain && !word.text.contains('=')
                };
                words.iter().filter(is_written).collect()
            }
            WrittenWords::Git(commands) => self.git_operands(commands, words),
        }
    }

    /// Returns the operands, and options that are not known to be something else.
    fn operands<'w>(&self, words: &'w [ShellWord]) -> Vec<&'w ShellWord> {
        let others: Vec<&ShellWord> = option_values(self.other_values, words).collect();
        let is_file = |word: &&ShellWord| {
            let is_flag = word.certain && (word.text.starts_with('-') || word.text.is_empty());
            let is_value = others.iter().any(|other| std::ptr::eq(*other, *word));
            !is_flag && !is_value
        };
        words.iter().filter(is_file).collect()
    }

    fn git_operands<'w>(&self, commands: &str, words: &'w [ShellWord]) -> Vec<&'w ShellWord> {
        let has_command = words.iter().any(|word| lists(commands, &word.text));
        let checkout = || {
            let is_checkout = words.iter().any(|word| word.text == "checkout");
            is_checkout.then(|| words.iter().position(|word| word.text == "--"))?
        };
        match checkout() {
            _ if has_command => self.operands(words),
            Some(dashes) => self.operands(&words[dashes..]),
            None => Vec::new(),
        }
    }
}

fn is_given(options: &str, words: &[ShellWord]) -> bool {
    let mut found = (0..words.len()).filter_map(|at| option_value(options, words, at));
    found.next().is_some()
}

/// Returns the values of these options, in the same word or the next one.
fn option_values<'w>(
    options: &'static str,
    words: &'w [ShellWord],
) -> impl Iterator<Item = &'w ShellWord> {
    (0..words.len()).filter_map(move |at| option_value(options, words, at)?)
}

/// Returns the word with the value of the option at this position, if it is one of these: `-o file`,
/// `-ofile`, `-sSo file`, `--output file`, `--output=file`.
fn option_value<'w>(
    options: &str,
    words: &'w [ShellWord],
    at: usize,
) -> Option<Option<&'w ShellWord>> {
    let word = &words[at];
    let next = words.get(at + 1);
    let cluster = word.text.strip_prefix('-')?;
    if cluster.starts_with('-') {
        let (name, value) = word.text.split_once('=').unwrap_or((&word.text, ""));
        let value = if value.is_empty() { next } else { Some(word) };
        return lists(options, name).then_some(value);
    }
    let mut letters = options.split_ascii_whitespace().filter_map(|option| {
        let letter = option.strip_prefix('-').filter(|it| it.len() == 1)?;
        cluster.find(letter)
    });
    let rest = &cluster[letters.next()? + 1..];
    Some(if rest.is_empty() { next } else { Some(word) })
}

fn is_in_place(word: &ShellWord) -> bool {
    let letters = word.text.strip_prefix('-').unwrap_or_default();
    let is_cluster = !letters.starts_with(['-', 'M', 'I', 'e']);
    letters.starts_with("-in-pl") || is_cluster && letters.contains('i')
}
