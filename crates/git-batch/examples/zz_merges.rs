use git_batch::*;
fn main() {
    let dir = std::path::PathBuf::from(std::env::args().nth(1).unwrap());
    let rounds: usize = std::env::args().nth(2).unwrap().parse().unwrap();
    let batch = GitBatch::open(&dir, Settings::default()).unwrap();
    let p = std::process::id();
    let ops: Vec<_> = (0..100)
        .map(|t| {
            Operation::commit(
                t.to_string(),
                Commit::new(format!("m{p}/t{t}"), format!("Do {t}"))
                    .with_base("main")
                    .write(format!("src/part-{}/task-{t}.txt", t % 10), format!("x{t}\n")),
            )
        })
        .collect();
    batch.apply(ops).unwrap();
    for round in 0..rounds {
        let into = format!("into{p}-{round}");
        std::process::Command::new("git")
            .current_dir(&dir)
            .args(["branch", "-q", "--no-track", &into, "main"])
            .status()
            .unwrap();
        let ops: Vec<_> = (0..100)
            .map(|t| Operation::merge(t.to_string(), format!("m{p}/t{t}"), &*into))
            .collect();
        let s = std::time::Instant::now();
        let r = batch.apply(ops).unwrap();
        eprintln!(
            "merges {:?} fsyncs {} {:?}",
            s.elapsed(),
            r.receipt().fsyncs,
            r.receipt().processes
        );
        assert!(r.outcomes.iter().all(|(_, o)| o.is_success()));
    }
}
