use git_batch::*;
use std::process::Command;
fn main() {
    let dir = std::path::PathBuf::from(std::env::args().nth(1).unwrap());
    let rounds: usize = std::env::args().nth(2).unwrap().parse().unwrap();
    let batch = GitBatch::open(&dir, Settings::default()).unwrap();
    for round in 0..rounds {
        let ops: Vec<_> = (0..100)
            .map(|t| {
                let content = format!("the result of task {t}\n").repeat(20);
                let c =
                    Commit::new(format!("r{round}-{}/t{t}", std::process::id()), format!("Do {t}"))
                        .with_base("main")
                        .write(format!("src/part-{}/task-{t}.txt", t % 10), content);
                Operation::commit(t.to_string(), c)
            })
            .collect();
        let s = std::time::Instant::now();
        let r = batch.apply(ops).unwrap();
        eprintln!("{:?} fsyncs {} {:?}", s.elapsed(), r.receipt().fsyncs, r.receipt().processes);
        assert!(r.outcomes.iter().all(|(_, o)| o.is_success()));
    }
    let _ = Command::new("true");
}
