//! The Rust sources of the crates, parsed once.

use std::{
    fs,
    path::{Path, PathBuf},
};

use syn::{
    File, ImplItem, Item, ItemMod, TraitItem, Visibility,
    spanned::Spanned,
    visit::{self, Visit},
};

/// A source file of a crate, without its tests.
pub(crate) struct Source {
    /// The path below the root of the project.
    pub(crate) path: PathBuf,
    /// The lines before the test module.
    pub(crate) lines: Vec<String>,
    /// The types that the file declares.
    pub(crate) types: Vec<Named>,
    /// The functions and methods that the file declares, except those a foreign trait names.
    pub(crate) functions: Vec<Named>,
    /// The string literals outside of tests, with their lines.
    pub(crate) texts: Vec<(usize, String)>,
}

/// A declared name.
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) line: usize,
    /// The number of lines from the signature to the closing brace.
    pub(crate) length: usize,
    pub(crate) public: bool,
}

impl Source {
    /// Loads every source file of the crates and of this program, in the order of their paths.
    pub(crate) fn load_all(root: &Path) -> Result<Vec<Self>, String> {
        let mut files = Vec::new();
        let crates = root.join("crates");
        for entry in read_folder(&crates)? {
            list_files(&entry.join("src"), &mut files)?;
        }
        for folder in ["bench/src", "docgen/src", "fuzz/src", "xtask/src"] {
            list_files(&root.join(folder), &mut files)?;
        }
        files.sort();
        files.iter().map(|file| Self::load(root, file)).collect()
    }

    fn load(root: &Path, file: &Path) -> Result<Self, String> {
        let text =
            fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let tree: File =
            syn::parse_file(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        let mut names = NameCollector::default();
        names.visit_file(&tree);
        let end = names.tests_begin.unwrap_or(usize::MAX);
        Ok(Self {
            path: file.strip_prefix(root).unwrap_or(file).to_owned(),
            lines: text.lines().take(end).map(str::to_owned).collect(),
            types: names.types,
            functions: names.functions,
            texts: names.texts,
        })
    }

    /// Names a line of the file as editors and compilers do.
    pub(crate) fn at(&self, line: usize) -> String {
        format!("{}:{line}", self.path.display())
    }
}

fn read_folder(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error| format!("{}: {error}", folder.display());
    fs::read_dir(folder)
        .map_err(failed)?
        .map(|entry| entry.map(|entry| entry.path()).map_err(failed))
        .collect()
}

fn list_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), String> {
    for path in read_folder(folder)? {
        if path.is_dir() {
            list_files(&path, files)?;
        } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with("tests.rs") {
            files.push(path);
        }
    }
    Ok(())
}

#[derive(Default)]
struct NameCollector {
    types: Vec<Named>,
    functions: Vec<Named>,
    texts: Vec<(usize, String)>,
    tests_begin: Option<usize>,
}

impl NameCollector {
    fn add_type(&mut self, ident: &syn::Ident, vis: &Visibility) {
        self.types.push(Named {
            name: ident.to_string(),
            line: ident.span().start().line,
            length: 1,
            public: matches!(vis, Visibility::Public(_)),
        });
    }

    fn add_function(&mut self, signature: &syn::Signature, whole: proc_macro2::Span) {
        let line = signature.span().start().line;
        self.functions.push(Named {
            name: signature.ident.to_string(),
            line,
            length: whole.end().line + 1 - line,
            public: false,
        });
    }
}

fn is_test_module(module: &ItemMod) -> bool {
    module.attrs.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Path>()
                .is_ok_and(|path| path.is_ident("test"))
    })
}

impl<'ast> Visit<'ast> for NameCollector {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Struct(item) => self.add_type(&item.ident, &item.vis),
            Item::Enum(item) => self.add_type(&item.ident, &item.vis),
            Item::Trait(item) => {
                self.add_type(&item.ident, &item.vis);
                for inner in &item.items {
                    if let TraitItem::Fn(function) = inner {
                        self.add_function(&function.sig, function.span());
                    }
                }
            }
            Item::Fn(function) => self.add_function(&function.sig, function.span()),
            Item::Impl(block) if block.trait_.is_none() => {
                for inner in &block.items {
                    if let ImplItem::Fn(function) = inner {
                        self.add_function(&function.sig, function.span());
                    }
                }
            }
            Item::Mod(module) if is_test_module(module) => {
                let line = module.span().start().line;
                self.tests_begin.get_or_insert(line.saturating_sub(1));
                return;
            }
            _ => {}
        }
        visit::visit_item(self, item);
    }

    // Attributes hold the texts of derives and docs; help texts of the command line come from its generated page.
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}

    fn visit_lit_str(&mut self, text: &'ast syn::LitStr) {
        self.texts.push((text.span().start().line, text.value()));
    }

    fn visit_macro(&mut self, macro_call: &'ast syn::Macro) {
        collect_texts(macro_call.tokens.clone(), &mut self.texts);
    }
}

/// Finds the string literals among the tokens of a macro call, such as `format!`.
fn collect_texts(tokens: proc_macro2::TokenStream, texts: &mut Vec<(usize, String)>) {
    for token in tokens {
        match token {
            proc_macro2::TokenTree::Group(group) => collect_texts(group.stream(), texts),
            proc_macro2::TokenTree::Literal(literal) => {
                let line = literal.span().start().line;
                if let Ok(text) = syn::parse_str::<syn::LitStr>(&literal.to_string()) {
                    texts.push((line, text.value()));
                }
            }
            proc_macro2::TokenTree::Ident(_) | proc_macro2::TokenTree::Punct(_) => {}
        }
    }
}
