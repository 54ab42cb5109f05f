//! What the stacks cost, beside those of the peers, in one run.

mod calls;
mod rounds;
mod stacks;
mod work;

fn main() {
    let args: Vec<_> = std::env::args().collect();
    if let [_, child, variant, work, n] = &args[..] {
        assert_eq!(child, "--child");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        calls::child(&runtime, variant, work, n.parse().expect("a number"));
        return;
    }
    let quick = std::env::args().any(|arg| arg == "--quick");
    let (rounds, iterations) = if quick { (15, 5_000) } else { (60, 10_000) };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    for work in calls::works() {
        let measured = calls::measure(&runtime, &work, rounds, iterations);
        println!("\n{} (bare {:.0} ns)", work.name, measured.nanos(calls::BARE));
        for name in measured.names() {
            let over = measured.over(name, calls::BARE);
            let ratio = measured.ratio(name, calls::TOWER, calls::BARE);
            println!("  {name:20} {over:8.0} ns over bare   {ratio:6.2} of tower");
        }
    }
}
