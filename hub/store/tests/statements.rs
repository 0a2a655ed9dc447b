//! Every SQL statement of this crate is prepared against the schema that the migrations make: a table, a column or a
//! function that is not there, or a type that does not fit, fails here and not in production.
//!
//! The statements are read from the sources: each string, and each `format!`, that begins as SQL does. What `format!` puts in
//! must be a constant, or stand in [`LOCALS`]. What a `QueryBuilder` puts together is left to the tests that run it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use roadstead_tests::TestDatabase;
use sqlx::{AssertSqlSafe, Executor as _, SqlSafeStr as _};
use syn::visit::Visit;

/// Local variables in a `format!` of SQL, by file and name, with all that they can be: texts, or names of constants.
const LOCALS: [(&str, &str, &[&str]); 5] = [
    ("changes.rs", "object", &["", "OBJECT_AS_WELL"]),
    ("reconciliation.rs", "actor", &["WHO_CHANGED_IT", "WHO_CONFIRMED", "NULL"]),
    ("resource.rs", "lock", &["", "FOR UPDATE"]),
    ("resource.rs", "on_conflict", &["", " ON CONFLICT (api_group, kind, namespace, name) DO NOTHING"]),
    ("schedule.rs", "usual", &["OLDEST", "OLDEST_OF_OTHERS"]),
];

/// What a statement begins with.
const VERBS: [&str; 6] = ["SELECT", "INSERT", "UPDATE", "DELETE", "WITH", "SET"];

/// sqlx's functions that take a statement.
const FUNCTIONS: [&str; 3] = ["query", "query_as", "query_scalar"];

struct Found {
    file: String,
    line: usize,
    sql: String,
}

/// Reads one file.
#[derive(Default)]
struct Reader {
    /// Constants that are strings.
    constants: BTreeMap<String, String>,
    /// Strings and `format!`s with their lines.
    texts: Vec<(usize, String, bool)>,
    /// Lines where a literal goes to sqlx.
    asked: Vec<(usize, String)>,
    /// Calls of sqlx.
    calls: usize,
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !module.attrs.iter().any(|attribute| attribute.path().is_ident("cfg")) {
            syn::visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_const(&mut self, constant: &'ast syn::ItemConst) {
        if let Some((_, text)) = literal(&constant.expr) {
            self.constants.insert(constant.ident.to_string(), text);
        }
        syn::visit::visit_item_const(self, constant);
    }

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {
        // Documentation is not SQL.
    }

    fn visit_lit_str(&mut self, text: &'ast syn::LitStr) {
        self.texts.push((text.span().start().line, text.value(), false));
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        if !call.path.is_ident("format") {
            return;
        }
        let arguments = syn::punctuated::Punctuated::<syn::Expr, syn::Token![,]>::parse_terminated;
        let Ok(arguments) = call.parse_body_with(arguments) else { return };
        if let Some((line, text)) = arguments.first().and_then(literal) {
            self.texts.push((line, text, true));
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if call.method == "push" {
            self.visit_expr(&call.receiver);
        } else {
            syn::visit::visit_expr_method_call(self, call);
        }
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let syn::Expr::Path(path) = &*call.func
            && path.path.segments.first().is_some_and(|segment| segment.ident == "sqlx")
            && path.path.segments.last().is_some_and(|last| FUNCTIONS.iter().any(|name| last.ident == name))
        {
            self.calls += 1;
            self.asked.extend(call.args.first().and_then(literal));
        }
        if let syn::Expr::Path(path) = &*call.func
            && path.path.segments.first().is_some_and(|segment| segment.ident == "QueryBuilder")
        {
            return;
        }
        syn::visit::visit_expr_call(self, call);
    }
}

fn literal(expression: &syn::Expr) -> Option<(usize, String)> {
    match expression {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => {
            Some((text.span().start().line, text.value()))
        }
        _ => None,
    }
}

fn is_statement(text: &str) -> bool {
    let verb = text.split_whitespace().next().unwrap_or_default();
    VERBS.contains(&verb) && text.trim().contains(char::is_whitespace)
}

/// What `format!` makes of a text, once for each value of its local variables.
fn formatted(file: &str, text: &str, constants: &BTreeMap<String, String>) -> Result<Vec<String>> {
    let mut done = vec![String::new()];
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        let (before, from) = rest.split_at(at);
        for sql in &mut done {
            sql.push_str(before);
        }
        if let Some(after) = from.strip_prefix("{{").or_else(|| from.strip_prefix("}}")) {
            for sql in &mut done {
                sql.push_str(&from[..1]);
            }
            rest = after;
            continue;
        }
        let (name, after) = from[1..].split_once('}').context("a brace that does not end")?;
        let local = LOCALS.iter().find(|(of, local, _)| file.ends_with(of) && *local == name);
        let values: Vec<&str> = match (constants.get(name), local) {
            (Some(constant), _) => vec![constant],
            (None, Some((_, _, values))) => {
                let value = |value: &'static str| constants.get(value).map_or(value, String::as_str);
                values.iter().copied().map(value).collect()
            }
            (None, None) => bail!("{{{name}}} is neither a constant of its module nor in LOCALS"),
        };
        done = done.iter().flat_map(|sql| values.iter().map(move |value| format!("{sql}{value}"))).collect();
        rest = after;
    }
    for sql in &mut done {
        sql.push_str(rest);
    }
    Ok(done)
}

fn parse(path: &Path) -> Result<Reader> {
    let text = std::fs::read_to_string(path)?;
    let mut reader = Reader::default();
    reader.visit_file(&syn::parse_file(&text).with_context(|| format!("{} is not Rust", path.display()))?);
    Ok(reader)
}

/// The statements of one file; constants of the module that it belongs to are its own, too.
fn read(root: &Path, file: &str, found: &mut Vec<Found>) -> Result<()> {
    let mut reader = parse(&root.join(file))?;
    if let Some((module, _)) = file.rsplit_once('/') {
        for (name, text) in parse(&root.join(format!("{module}.rs")))?.constants {
            reader.constants.entry(name).or_insert(text);
        }
    }
    for (line, asked) in &reader.asked {
        ensure!(is_statement(asked), "{file}:{line}: a statement that begins with none of {VERBS:?}");
    }
    let before = found.len();
    for (line, text, is_format) in &reader.texts {
        if !is_statement(text) {
            continue;
        }
        let statements = if *is_format {
            formatted(file, text, &reader.constants).with_context(|| format!("{file}:{line}"))?
        } else {
            vec![text.clone()]
        };
        found.extend(statements.into_iter().map(|sql| Found { file: file.to_owned(), line: *line, sql }));
    }
    ensure!(
        reader.calls == 0 || found.len() > before,
        "{file} asks the database, and no statement was found in it"
    );
    Ok(())
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            sources(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

#[tokio::test]
async fn every_statement_fits_the_schema() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    sources(&root, &mut paths)?;
    let mut found = Vec::new();
    for path in &paths {
        read(&root, &path.strip_prefix(&root)?.to_string_lossy(), &mut found)?;
    }
    let database = TestDatabase::new().await?;
    let mut connection = database.connect().await?;
    sqlx::migrate!("../../migrations").run(&mut connection).await?;
    let mut wrong = Vec::new();
    for Found { file, line, sql } in &found {
        if let Err(error) = connection.prepare(AssertSqlSafe(sql.clone()).into_sql_str()).await {
            wrong.push(format!("{file}:{line}: {error}\n{sql}\n"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    // What this stands on: a column that is not there is noticed.
    let unknown = connection.prepare("SELECT no_such_column FROM resource".into_sql_str()).await;
    ensure!(unknown.is_err(), "a column that is not there was not noticed");
    println!("{} statements in {} files", found.len(), paths.len());
    Ok(())
}

#[test]
fn what_format_puts_in_is_put_in() -> Result<()> {
    let constants = BTreeMap::from([("COLUMNS".to_owned(), "a, b".to_owned())]);
    let sql = formatted("resource.rs", "SELECT {COLUMNS} #>> '{{c}}' FROM t {lock}", &constants)?;
    assert_eq!(sql, ["SELECT a, b #>> '{c}' FROM t ", "SELECT a, b #>> '{c}' FROM t FOR UPDATE"]);
    assert!(formatted("other.rs", "SELECT {lock}", &constants).is_err());
    Ok(())
}
