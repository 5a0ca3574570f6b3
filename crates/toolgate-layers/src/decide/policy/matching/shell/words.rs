//! Words of commands that may name files, hosts and directories.

use std::collections::HashSet;

use super::CommandWords;

/// Returns every word once, and its parts: `.env` in `--file=.env`, `@.env`, `host:.env` and
/// `-T.env`.
pub(crate) fn unique_words<'a>(runs: impl Iterator<Item = &'a CommandWords>) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut words = Vec::new();
    for word in runs.flatten() {
        if !seen.insert(word.as_str()) {
            continue;
        }
        words.push(word.clone());
        let attached = word
            .strip_prefix('-')
            .filter(|rest| !rest.starts_with('-'))
            .and_then(|rest| {
                let mut rest = rest.chars();
                rest.next().map(|_| rest.as_str())
            });
        let parts = word
            .split(['=', ',', ':', '@'])
            .filter(|part| part.len() < word.len());
        for part in parts.chain(attached).filter(|part| !part.is_empty()) {
            if seen.insert(part) {
                words.push(part.to_owned());
            }
        }
    }
    words
}

/// Adds the directories that commands change to: `cd x`, `tar -C x`, `git --directory=x`.
pub(crate) fn add_directories<'a>(
    runs: impl Iterator<Item = &'a CommandWords>,
    dirs: &mut Vec<String>,
    most: usize,
) {
    for run in runs {
        for (at, word) in run.iter().enumerate() {
            let next = || run.get(at + 1).map(String::as_str);
            let goes = matches!(
                word.as_str(),
                "cd" | "pushd" | "chdir" | "-C" | "--directory" | "--cwd" | "--chdir"
            );
            let attached = ["--directory=", "--cwd=", "--chdir=", "-C"]
                .iter()
                .find_map(|flag| word.strip_prefix(flag));
            let Some(dir) = attached
                .filter(|dir| !dir.is_empty())
                .or_else(|| next().filter(|_| goes))
            else {
                continue;
            };
            let relative = !dir.starts_with(['/', '~']);
            let deeper: Vec<String> = dirs
                .iter()
                .filter(|_| relative)
                .map(|from| format!("{from}/{dir}"))
                .collect();
            let new = deeper
                .into_iter()
                .chain([dir.to_owned()])
                .filter(|dir| !dirs.contains(dir))
                .collect::<Vec<_>>();
            dirs.extend(new);
            if dirs.len() >= most {
                return dirs.truncate(most);
            }
        }
    }
}
