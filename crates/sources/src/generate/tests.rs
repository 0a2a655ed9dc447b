use super::*;
use crate::attempt::InProcess;
use crate::tree::{Entry, TreeBuilder, TreeLimits};

fn artifact(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = TreeBuilder::new(TreeLimits::default());
    for (path, text) in files {
        let entry = match text.strip_prefix("-> ") {
            Some(target) => Entry::Symlink { target: target.to_owned() },
            None => Entry::File { bytes: text.as_bytes().to_vec(), executable: false },
        };
        builder.insert((*path).to_owned(), entry).unwrap();
    }
    crate::pack(&builder.finish().unwrap()).unwrap().bytes
}

fn output(name: &str, copies: &[(&str, &str)]) -> Output {
    let copy = copies.iter().map(|(from, to)| Copy {
        from: (*from).to_owned(),
        to: (*to).to_owned(),
        exclude: Vec::new(),
        strategy: Strategy::Overwrite,
    });
    Output { name: name.to_owned(), copy: copy.collect() }
}

fn generate(pattern: Option<&str>, outputs: Vec<Output>) -> Generate {
    let (known, limits) = (BTreeSet::new(), GenerateLimits::default());
    let pattern = pattern.map(str::to_owned);
    Generate { pattern, outputs, known, limits, room: None, disk: None, scratch: None }
}

/// All that comes of it, with the number of parts in which it came.
async fn all(
    what: Generate,
    sources: &[(&str, Vec<u8>)],
) -> Result<(Vec<Product>, usize, u64), GenerateError> {
    let mut generation = Generation::new(what)?;
    for (alias, bytes) in sources {
        generation.add(alias, bytes.clone()).await?;
    }
    let (mut products, mut parts) = (Vec::new(), 0);
    loop {
        let batch = generation.next("it", &InProcess::default(), &CancellationToken::new()).await?;
        products.extend(batch.products);
        parts += 1;
        if batch.is_last {
            return Ok((products, parts, batch.links));
        }
    }
}

fn paths(product: &Product) -> Vec<String> {
    let tree = crate::unpack(product.bytes.as_deref().unwrap(), &TreeLimits::default()).unwrap();
    tree.iter().map(|(path, _)| path.clone()).collect()
}

#[tokio::test]
async fn a_change_moves_only_what_it_is_part_of() {
    let repo = |word: &str| {
        artifact(&[
            ("apps/web/app.yaml", word),
            ("apps/web/logo.png", "left out"),
            ("apps/web/base", "-> ../db"),
            ("apps/db/app.yaml", "same"),
            ("shared/policy.yaml", "p"),
        ])
    };
    let outputs = || {
        vec![output(
            "{app}",
            &[("@repo/apps/{app}/**", "@artifact/"), ("@repo/shared/policy.yaml", "@artifact/shared/")],
        )]
    };
    let pattern = Some("@repo/apps/{app}");
    let (first, _, links) = all(generate(pattern, outputs()), &[("repo", repo("one"))]).await.unwrap();
    let names: Vec<&str> = first.iter().map(|product| product.name.as_str()).collect();
    assert_eq!((names.as_slice(), links), (["db", "web"].as_slice(), 1));
    assert_eq!(paths(&first[1]), ["app.yaml", "shared/policy.yaml"]);
    assert_eq!(first[0].labels["app"], "db");
    let mut again = generate(pattern, outputs());
    again.known = first.iter().map(|product| product.digest).collect();
    let (second, _, _) = all(again, &[("repo", repo("two"))]).await.unwrap();
    assert_eq!((second[0].digest, &second[0].bytes), (first[0].digest, &None), "db was made again");
    assert_ne!(second[1].digest, first[1].digest);
    assert_eq!(Digest::of(second[1].bytes.as_ref().unwrap()), second[1].digest);
}

#[tokio::test]
async fn much_comes_in_parts() {
    // Nothing that can be packed.
    let mut state = 1_u64;
    let mut noise = |bytes: usize| {
        let sign = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            char::from(b'!' + ((state >> 33) % 90) as u8)
        };
        std::iter::repeat_with(sign).take(bytes).collect::<String>()
    };
    let files: Vec<(String, String)> = (0..5).map(|number| (format!("{number}"), noise(9 << 20))).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let outputs =
        (0..5).map(|number| output(&format!("a{number}"), &[(&format!("@s/{number}"), "@artifact/")]));
    let outputs: Vec<Output> = outputs.collect();
    let (products, parts, _) =
        all(generate(None, outputs.clone()), &[("s", artifact(&files))]).await.unwrap();
    assert_eq!(products.len(), 5);
    assert!(parts > 1, "it came in one part");
    for (number, product) in products.iter().enumerate() {
        assert_eq!(paths(product), [number.to_string()]);
    }
    let mut small = generate(None, outputs);
    small.limits.artifact_bytes = 1 << 20;
    let refused = all(small, &[("s", artifact(&files))]).await.unwrap_err().to_string();
    assert!(refused.contains("artifact 'a0': more than 1048576 bytes packed"), "{refused}");
}

#[tokio::test]
async fn what_cannot_be_made_says_which_it_is_and_whether_that_stays_so() {
    let source = || [("s", artifact(&[("apps/a/x.yaml", "1"), ("apps/A/x.yaml", "2")]))];
    let missing = generate(None, vec![output("web", &[("@s/nothing", "@artifact/")])]);
    match all(missing, &source()).await.unwrap_err() {
        GenerateError::Failed { name, why } => {
            assert_eq!((name.as_deref(), why.as_str()), (Some("web"), "'nothing' does not exist"));
        }
        other => panic!("{other:?}"),
    }
    let same = generate(Some("@s/apps/{app}"), vec![output("{app}", &[("@s/apps/{app}", "@artifact/")])]);
    match all(same, &source()).await.unwrap_err() {
        GenerateError::Spec { name: None, why } => assert!(why.contains("would both be called 'a'"), "{why}"),
        other => panic!("{other:?}"),
    }
    let broken = generate(None, vec![output("web", &[("@s/", "@artifact/")])]);
    let why = all(broken, &[("s", b"no artifact".to_vec())]).await.unwrap_err().to_string();
    assert!(why.contains("not a complete tar.gz"), "{why}");
    let mut small = generate(None, vec![output("web", &[("@s/", "@artifact/")])]);
    small.limits.unpacked_bytes = 1;
    let why = all(small, &source()).await.unwrap_err().to_string();
    assert!(why.contains("more than 1 bytes in all files"), "{why}");
}
