//! Skills: announced in every request, loaded when they help, each once in a session.

pub(crate) mod file;
mod front_matter;
mod read_text;
pub(crate) mod skill;
mod strategy;
mod tools;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use toolgate_core::{AnyLayer, RegisterError, Registry};

use crate::{
    Skill, SkillError,
    agent::skills::tools::{LoadReferenceTool, LoadSkillTool},
};

/// The skills of a program: two tools and a [`Strategy`](crate::Strategy).
///
/// The model reads the name and description of each skill. When it calls `load_skill`, it gets the
/// instructions as the result of that call; a second call says that they were given. The effects of
/// a skill last from the next iteration to the end of the session, also in another process:
///
/// * **Tools.** A skill never makes more tools available than the session allows. Tools that were
///   [held back](Self::hold_back) are hidden until a loaded skill names them among its
///   `allowed-tools`. With [`narrowing`](Self::narrowing), once a skill with such a list is loaded,
///   only the tools that the lists of loaded skills name are shown. Without either, `allowed-tools`
///   changes nothing: skills written for other programs name tools that do not exist here.
/// * **Layers.** The program can provide [layers](Self::layers) for a skill.
///
/// An iteration that only loaded skills for the first time is not counted, a few times per run.
///
/// ```
/// use toolgate_core::Registry;
/// use toolgate_runtime::Skills;
/// # let dir = tempfile::tempdir().unwrap();
/// # std::fs::create_dir(dir.path().join("pdf")).unwrap();
/// # std::fs::write(dir.path().join("pdf/SKILL.md"), "---\nname: pdf\ndescription: Reads PDF files.\n---\n").unwrap();
/// let found = Skills::discover([dir.path()]);
/// assert!(found.problems.is_empty());
/// let registry = Registry::new();
/// found.skills.install(&registry)?;
/// assert_eq!(registry.len(), 2);
/// # Ok::<(), toolgate_core::RegisterError>(())
/// ```
#[derive(Clone)]
pub struct Skills {
    pub(crate) by_name: Arc<BTreeMap<String, Skill>>,
    pub(crate) announcement: Arc<str>,
    pub(crate) held_back: Arc<BTreeSet<String>>,
    pub(crate) narrowing: bool,
    pub(crate) max_refunds: u32,
    pub(crate) layers: Option<SkillLayers>,
}

/// The layers that belong to a skill.
pub(crate) type SkillLayers = Arc<dyn Fn(&Skill) -> Vec<AnyLayer> + Send + Sync>;

/// The skills found in a number of directories.
#[derive(Debug)]
pub struct DiscoveredSkills {
    /// The skills that can be used.
    pub skills: Skills,
    /// The folders that cannot be used, and why: the user should see them.
    pub problems: Vec<SkillProblem>,
}

/// A folder that looked like a skill and is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SkillProblem {
    /// It is malformed, or cannot be read.
    #[error(transparent)]
    Broken(#[from] SkillError),
    /// An earlier directory has a skill of that name.
    #[error("{path} is not used: there is a skill of that name in {used}")]
    Shadowed {
        /// The unused folder.
        path: PathBuf,
        /// The folder that is used instead.
        used: PathBuf,
    },
    /// There are too many.
    #[error("{path} is not used: there are {} skills already", Skills::MOST)]
    TooMany {
        /// The unused folder.
        path: PathBuf,
    },
}

impl Skills {
    /// The maximum number of skills of a program.
    pub const MOST: usize = 100;
    /// Default limit on the iterations of a run that are not counted.
    pub const REFUNDS: u32 = 4;

    /// Creates a set of these skills. If two have the same name, the first is used.
    pub fn new(skills: impl IntoIterator<Item = Skill>) -> Self {
        let mut by_name = BTreeMap::new();
        for skill in skills {
            by_name.entry(skill.file().name.clone()).or_insert(skill);
        }
        let announcement = build_announcement(by_name.values()).into();
        let by_name = Arc::new(by_name);
        let held_back = Arc::default();
        let layers = None;
        Self {
            by_name,
            announcement,
            held_back,
            narrowing: false,
            max_refunds: Self::REFUNDS,
            layers,
        }
    }

    /// Finds skills in `directories`: every folder in one should be a skill, except hidden ones.
    ///
    /// The order is that of names, whatever the file system returns. Of two skills with the same
    /// name, the one in the earlier directory is used. Everything that is not used is among the
    /// problems, also a directory that does not exist.
    pub fn discover<P: AsRef<Path>>(directories: impl IntoIterator<Item = P>) -> DiscoveredSkills {
        let mut found = BTreeMap::<String, Skill>::new();
        let mut problems = Vec::new();
        for folder in directories
            .into_iter()
            .flat_map(|directory| list_folders(directory.as_ref()))
        {
            match folder.and_then(Skill::open) {
                Err(error) => problems.push(error.into()),
                Ok(skill) => {
                    let path = skill.folder().to_owned();
                    match found.get(&skill.file().name) {
                        Some(first) => problems.push(SkillProblem::Shadowed {
                            path,
                            used: first.folder().to_owned(),
                        }),
                        None if found.len() >= Self::MOST => {
                            problems.push(SkillProblem::TooMany { path })
                        }
                        None => drop(found.insert(skill.file().name.clone(), skill)),
                    }
                }
            }
        }
        DiscoveredSkills {
            skills: Self::new(found.into_values()),
            problems,
        }
    }

    /// Adds `load_skill` and `load_reference` to a registry; adds nothing if there is no skill.
    pub fn install(&self, registry: &Registry) -> Result<(), RegisterError> {
        if self.by_name.is_empty() {
            return Ok(());
        }
        registry.register(LoadSkillTool(self.clone()))?;
        registry.register(LoadReferenceTool(self.clone()))?;
        Ok(())
    }

    /// Hides these tools until a loaded skill names them among its `allowed-tools`.
    ///
    /// The session has to allow them: a tool that it does not have stays hidden, whatever skills
    /// name.
    pub fn hold_back<'a>(mut self, tools: impl IntoIterator<Item = &'a str>) -> Self {
        self.held_back = Arc::new(tools.into_iter().map(str::to_owned).collect());
        self
    }

    /// Shows only the tools that `allowed-tools` lists name, and the tools for skills, once a skill
    /// with such a list is loaded.
    pub fn narrowing(mut self) -> Self {
        self.narrowing = true;
        self
    }

    /// Sets how many iterations of a run are not counted, at most, because they only loaded skills.
    pub fn max_refunds(mut self, iterations: u32) -> Self {
        self.max_refunds = iterations;
        self
    }

    /// Sets the function that returns the layers of each loaded skill. They are placed inside those
    /// of the session.
    pub fn layers(
        mut self,
        resolve: impl Fn(&Skill) -> Vec<AnyLayer> + Send + Sync + 'static,
    ) -> Self {
        self.layers = Some(Arc::new(resolve));
        self
    }

    /// Returns a skill by name.
    pub fn get(&self, name: &str) -> Option<&Skill> {
        self.by_name.get(name)
    }

    /// Returns all skills, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = &Skill> {
        self.by_name.values()
    }
}

impl fmt::Debug for Skills {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Skills")
            .field("names", &self.by_name.keys())
            .finish_non_exhaustive()
    }
}

/// Returns the folders in a directory, ordered by name.
fn list_folders(directory: &Path) -> Vec<Result<PathBuf, SkillError>> {
    let failed = |source| SkillError::Io {
        path: directory.to_owned(),
        source,
    };
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(source) => return vec![Err(failed(source))],
    };
    let mut folders = Vec::new();
    let mut broken = Vec::new();
    for entry in entries {
        match entry {
            Ok(entry) if entry.file_name().as_encoded_bytes().starts_with(b".") => {}
            // A folder may be a link: the operator put it there.
            Ok(entry) if entry.path().is_dir() => folders.push(entry.path()),
            Ok(_) => {}
            Err(source) => broken.push(Err(failed(source))),
        }
    }
    folders.sort();
    folders.into_iter().map(Ok).chain(broken).collect()
}

/// Builds the announcement for every model. The same skills give the same text, so that providers
/// can cache it.
fn build_announcement<'a>(skills: impl Iterator<Item = &'a Skill>) -> String {
    let mut text =
        "# Skills\n\nA skill holds instructions for one kind of task. Before you work on a task that fits one \
                    of these, call `load_skill` with its name, once, and do as it says.\n"
            .to_owned();
    for skill in skills {
        let words: Vec<&str> = skill.file().description.split_whitespace().collect();
        text.push_str(&format!("\n- {}: {}", skill.file().name, words.join(" ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(directory: &Path, folder: &str, name: &str, description: &str) {
        let folder = directory.join(folder);
        fs::create_dir_all(&folder).expect("made");
        let text = format!("---\nname: {name}\ndescription: {description}\n---\nDo it.\n");
        fs::write(folder.join(Skill::FILE), text).expect("written");
    }

    #[test]
    fn the_earlier_directory_wins_and_nothing_is_dropped_silently() {
        let ours = tempfile::tempdir().expect("a place");
        let theirs = tempfile::tempdir().expect("a place");
        write(ours.path(), "b", "b", "ours");
        write(theirs.path(), "b", "b", "theirs");
        write(theirs.path(), "a", "a", "first");
        write(theirs.path(), "broken", "other", "misnamed");
        fs::create_dir(theirs.path().join("empty")).expect("made");
        fs::create_dir(theirs.path().join(".git")).expect("made");
        fs::write(theirs.path().join("README.md"), "no skill").expect("written");
        let nowhere = theirs.path().join("nowhere");
        let found = Skills::discover([ours.path(), theirs.path(), &nowhere]);
        let texts: Vec<_> = found
            .skills
            .iter()
            .map(|skill| {
                (
                    skill.file().name.as_str(),
                    skill.file().description.as_str(),
                )
            })
            .collect();
        assert_eq!(texts, [("a", "first"), ("b", "ours")]);
        let said: Vec<String> = found.problems.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 4, "{said:?}");
        assert!(
            said[0].contains("/b is not used: there is a skill of that name in "),
            "{said:?}"
        );
        assert!(said[1].contains("broken/SKILL.md, line 2"), "{said:?}");
        assert!(
            said[2].contains("empty/SKILL.md: there is no such file"),
            "{said:?}"
        );
        assert!(said[3].contains("nowhere could not be read: "), "{said:?}");
    }

    #[test]
    fn the_number_of_skills_is_limited() {
        let dir = tempfile::tempdir().expect("a place");
        for n in 0..=Skills::MOST {
            write(
                dir.path(),
                &format!("s{n:03}"),
                &format!("s{n:03}"),
                "one of many",
            );
        }
        let found = Skills::discover([dir.path()]);
        assert_eq!(found.skills.iter().count(), Skills::MOST);
        assert!(
            matches!(&found.problems[..], [SkillProblem::TooMany { path }] if path.ends_with("s100"))
        );
    }

    #[test]
    fn the_announcement_is_the_same_for_the_same_skills_and_one_line_each() {
        let dir = tempfile::tempdir().expect("a place");
        write(dir.path(), "b", "b", "\"two\\nlines\"");
        write(dir.path(), "a", "a", "one");
        let told = |skills: Skills| skills.announcement.to_string();
        let text = told(Skills::discover([dir.path()]).skills);
        assert!(text.ends_with("\n\n- a: one\n- b: two lines"), "{text}");
        assert_eq!(text, told(Skills::discover([dir.path()]).skills));
    }

    #[test]
    fn without_skills_there_are_no_tools_for_them() {
        let registry = Registry::new();
        Skills::new([]).install(&registry).expect("free");
        assert!(registry.is_empty());
    }
}
