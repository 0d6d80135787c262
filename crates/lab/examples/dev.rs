fn main() {
    if overbook_lab::agent::is_init() { overbook_lab::agent::main() }
    let a: Vec<String> = std::env::args().collect();
    if a.len()>1 && a[1]=="__vm" { overbook_vmm::serve().unwrap(); return }
    use overbook_lab::*; use std::path::*; use std::time::*;
    let (s,_) = Scenario::read(Path::new(&a[1])).unwrap();
    let seed = s.seed;
    let k = overbook_kernels::dev();
    let accel = match a.get(3).map(|s|s.as_str()) { Some("kvm")=>qemu::Accel::Kvm, Some("par")=>qemu::Accel::Parallel, _=>qemu::Accel::Icount };
    let job = protocol::Job { task: protocol::Task::Scenario(Box::new(s.clone())), accel: accel.name().into(), emulator: String::new(), seed, strict:false };
    let dir = PathBuf::from(&a[2]); std::fs::create_dir_all(&dir).unwrap();
    let ir = dir.join("initramfs"); initramfs::write(&ir,&k,&job).unwrap();
    let t=Instant::now();
    let boot = qemu::Boot{kernel:&k.image, initramfs:&ir, dir:&dir, host:&s.host, accel, seed};
    let mut r = boot.start().unwrap(); let no=std::sync::atomic::AtomicBool::new(false);
    loop { match r.next_line(Duration::from_secs(300),&no).unwrap() {
        qemu::Next::Line(l) => { println!("{:.1} {}", t.elapsed().as_secs_f64(), summary(&l)); }
        qemu::Next::Stopped => { println!("{:.1} stopped", t.elapsed().as_secs_f64()); for l in r.last_words(15){println!("| {l}")} break }
        _ => { println!("silent"); for l in r.last_words(30){println!("| {l}")} break } } }
}
fn summary(l:&str)->String { use overbook_lab::protocol::Event; match serde_json::from_str(l) { Ok(Event::Run(r)) => { let mut s=format!("RUN {} #{} win {} ctx {} mig {} err {:?}", r.variant, r.repetition, r.window_ns, r.context_switches, r.migrations, r.error); for v in &r.vms { s+=&format!("\n   {} rate {:.1} cpus {:.2}/{:.2} spins {} steal {} pause {:?} spin {} tried {} ok {} same {} other {}", v.name, v.rate, v.cpus_used, v.entitled_cpus, v.vcpus.iter().map(|c|c.spins).sum::<u64>(), v.vcpus.iter().map(|c|c.steal_ns).sum::<u64>(), v.kvm.exits, v.kvm.on_spin, v.kvm.yield_tried, v.kvm.yield_ok, v.kvm.yield_same_rq, v.kvm.yield_other_rq); } s }, Ok(Event::Instrument(i)) => { let mut s=format!("INSTR idle {} busy {} skew {:.2} ok {} {:?}", i.loop_idle_ns,i.loop_busy_ns,i.loop_skew_percent,i.ok,i.complaints); for t in i.turns { s+=&format!("\n   {:55} p50 {:8} p99 {:8} max {:8} lim {}", t.name,t.p50_ns,t.p99_ns,t.max_ns,t.limit_ns);} s } _ => l.chars().take(2500).collect() } }
