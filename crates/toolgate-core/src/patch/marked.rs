//! Parses the format that begins with `*** Begin Patch`, as far as it names files.

use super::{
    InvalidPatch, PatchedFile, document::numbered_lines, invalid_line, push_file, shorten,
};

const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";

/// A header that names a file.
type FileHeader = (&'static str, fn(String) -> PatchedFile);

const FILE_HEADERS: [FileHeader; 3] = [
    ("*** Add File: ", PatchedFile::Created),
    ("*** Update File: ", PatchedFile::Modified),
    ("*** Delete File: ", PatchedFile::Deleted),
];

/// Checks whether the first line with text is one of this format.
pub(super) fn is_marked(text: &str) -> bool {
    let text = text.trim_start();
    text.starts_with(BEGIN) || FILE_HEADERS.iter().any(|(word, _)| text.starts_with(word))
}

/// Parses the files of a patch. The first and the last line may be missing: they name no file.
pub(super) fn parse_marked(text: &str) -> Result<Vec<PatchedFile>, InvalidPatch> {
    let mut files: Vec<PatchedFile> = Vec::new();
    let mut lines = numbered_lines(text);
    while lines
        .next_if(|(_, line)| line.trim().is_empty() || line.trim_end() == BEGIN)
        .is_some()
    {}
    let mut is_over = false;
    while let Some((number, line)) = lines.next() {
        let line = line.trim_end();
        if line.is_empty() {
            continue;
        }
        let misplaced = || invalid_line(number, format!("{:?} is out of place", shorten(line)));
        if is_over {
            return Err(misplaced());
        }
        is_over = line == END;
        if let Some(file) = parse_file_header(line) {
            push_file(&mut files, file)?;
        } else if let Some(to) = line.strip_prefix("*** Move to: ") {
            let Some(PatchedFile::Modified(from)) = files.pop() else {
                return Err(misplaced());
            };
            let to = to.trim().to_owned();
            files.push(PatchedFile::Renamed { from, to });
        } else if files.is_empty() || !(is_over || is_content(line)) {
            return Err(misplaced());
        }
        // Another program could take the rest for a unified diff.
        let next = lines.peek().map_or("", |(_, next)| next);
        if line.starts_with("--- ") && next.starts_with("+++ ") {
            return Err(misplaced());
        }
    }
    if files.is_empty() {
        Err(InvalidPatch("the patch names no file".to_owned()))
    } else {
        Ok(files)
    }
}

fn parse_file_header(line: &str) -> Option<PatchedFile> {
    let named = |(word, file): &FileHeader| Some(file(line.strip_prefix(word)?.trim().to_owned()));
    FILE_HEADERS.iter().find_map(named)
}

/// Checks whether a line belongs to the content of a file. Some programs ignore spaces before a
/// header, so a header with spaces is neither.
fn is_content(line: &str) -> bool {
    line == "*** End of File"
        || line.starts_with(['+', '-', ' ', '@']) && !line.trim_start().starts_with("*** ")
}
