//! Readers and writers at the same time.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use prompt_templates::{Context, ErrorKind, Prompts};

/// Templates that say their version three times: themselves, and through two partials.
fn publish(prompts: &Prompts, dir: &std::path::Path, version: u32) {
    std::fs::write(dir.join("_a.prompt.md"), format!("a{version}")).expect("it can be written");
    std::fs::write(dir.join("_b.prompt.md"), format!("{{% include \"_a\" %}} b{version}"))
        .expect("it can be written");
    std::fs::write(
        dir.join("p.prompt.md"),
        format!("p{version} {{% include \"_b\" %}} {{{{ x }}}}"),
    )
    .expect("it can be written");
    // The same with a list, which is rendered by `upon`.
    std::fs::write(
        dir.join("q.prompt.md"),
        format!("q{version} {{% include \"_b\" %}} {{{{ x | default: [] }}}}"),
    )
    .expect("it can be written");
    // Everything, or what a look finds to be new.
    if version.is_multiple_of(2) {
        prompts.reload().expect("all four are good");
    } else {
        let reload = prompts.reload_if_changed().expect("all four are good");
        assert_eq!(reload.expect("all four are others").changed, 4);
    }
}

#[test]
fn a_render_during_a_reload_never_mixes_versions() {
    const VERSIONS: u32 = 200;
    let dir = tempfile::tempdir().unwrap();
    let prompts = Prompts::load_dir(dir.path()).unwrap();
    publish(&prompts, dir.path(), 0);
    let (done, start) = (AtomicBool::new(false), Barrier::new(4));
    std::thread::scope(|scope| {
        for name in ["p", "q", "p"] {
            let (prompts, done, start) = (&prompts, &done, &start);
            scope.spawn(move || {
                let mut context = Context::new();
                let context = context.set("x", "X").unwrap();
                let mut last = 0;
                start.wait();
                while !done.load(Ordering::Acquire) {
                    let text = prompts.render(name, context).unwrap();
                    let version: u32 = text[1..].split(' ').next().unwrap().parse().unwrap();
                    assert_eq!(text, format!("{name}{version} a{version} b{version} X"));
                    assert!(version >= last, "a reader never goes back");
                    last = version;
                }
            });
        }
        start.wait();
        for version in 1..=VERSIONS {
            publish(&prompts, dir.path(), version);
        }
        done.store(true, Ordering::Release);
    });
    assert!(
        prompts.render("p", Context::new().set("x", "").unwrap()).unwrap().starts_with("p200 ")
    );
}

#[test]
fn each_writer_gets_its_own_answer() {
    const THREADS: usize = 4;
    const TEXTS: usize = 200;
    let prompts = Prompts::builder().capacity(THREADS * TEXTS).build().unwrap();
    let start = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (prompts, start) = (&prompts, &start);
            scope.spawn(move || {
                start.wait();
                for n in 0..TEXTS {
                    let (name, text) = (format!("{thread}/{n}"), format!("{thread} says {n}"));
                    let prompt = prompts.compile(&name, &text).unwrap();
                    assert_eq!((prompt.name(), prompt.text()), (name.as_str(), text.as_str()));
                    assert!(prompts.compile(&name, "{{").is_err());
                    assert_eq!(prompts.render(&name, &Context::new()).unwrap(), text);
                }
            });
        }
    });
    let stats = prompts.stats();
    let expected = (THREADS * TEXTS) as u64;
    assert_eq!(prompts.len(), THREADS * TEXTS);
    assert_eq!(
        (stats.compiles, stats.compile_failures, stats.renders),
        (expected, expected, expected)
    );
    assert!(stats.publications <= expected);
    let versions: std::collections::BTreeSet<_> =
        prompts.all_template_stats().iter().map(|stats| stats.version).collect();
    assert_eq!(versions.len(), THREADS * TEXTS, "no two texts share a version");
}

#[test]
fn many_writers_of_one_text_compile_to_one_version() {
    let prompts = Prompts::builder().build().unwrap();
    let start = Barrier::new(4);
    let versions: Vec<u64> = std::thread::scope(|scope| {
        let write = || {
            start.wait();
            prompts.compile("a", "the same").unwrap().version()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(write)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(versions.iter().all(|version| *version == versions[0]), "{versions:?}");
}

/// Whatever is taken away meanwhile: a prompt is there whole, of one version, or not at all.
#[test]
fn a_render_beside_removals_and_reloads_is_whole_or_not_found() {
    const ROUNDS: u32 = 100;
    let dir = tempfile::tempdir().unwrap();
    let prompts = Prompts::load_dir(dir.path()).unwrap();
    let (done, start) = (AtomicBool::new(false), Barrier::new(4));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut context = Context::new();
                let context = context.set("x", "X").unwrap();
                start.wait();
                while !done.load(Ordering::Acquire) {
                    match prompts.render("p", context) {
                        Ok(text) => {
                            let version = text[1..].split(' ').next().unwrap();
                            assert_eq!(text, format!("p{version} a{version} b{version} X"));
                        }
                        Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{error}"),
                    }
                }
            });
        }
        scope.spawn(|| {
            start.wait();
            while !done.load(Ordering::Acquire) {
                prompts.clear().unwrap();
                let _ = prompts.remove("p").unwrap();
                // It goes only while nothing includes it.
                if let Err(error) = prompts.remove("_a") {
                    assert_eq!(error.kind(), ErrorKind::InUse, "{error}");
                }
            }
        });
        start.wait();
        for version in 0..ROUNDS {
            for (name, text) in [
                ("_a", format!("a{version}")),
                ("_b", format!("{{% include \"_a\" %}} b{version}")),
                ("p", format!("p{version} {{% include \"_b\" %}} {{{{ x }}}}")),
            ] {
                std::fs::write(dir.path().join(format!("{name}.prompt.md")), text).unwrap();
            }
            prompts.reload().unwrap();
        }
        done.store(true, Ordering::Release);
    });
    prompts.reload().unwrap();
    let text = prompts.render("p", Context::new().set("x", "").unwrap()).unwrap();
    assert!(text.starts_with("p99 a99 b99"), "{text}");
}
