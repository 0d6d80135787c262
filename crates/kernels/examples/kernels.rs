// SPDX-License-Identifier: GPL-2.0-only
//! Lists kernels, and resolves the series that are named: `kernels [--update] [SERIES…]`.

use anyhow::Result;
use overbook_kernels::{Cache, Want, list, module_closure, qualify, read_module, resolve, update};

fn main() -> Result<()> {
    let (flags, series): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|a| a.starts_with("--"));
    let find = if flags.iter().any(|f| f == "--update") { update } else { resolve };
    let cache = Cache::open_default()?;
    let mut say = |word: &str| eprintln!("… {word}");
    for one in series {
        let want = Want { series: Some(one.clone()), ..Want::default() };
        match find(&want, &cache, &mut say) {
            Err(why) => println!("{one}: {why:#}"),
            Ok(kernel) => {
                println!("{one}: {}\n  modules {}", kernel.image.display(), kernel.modules.display());
                println!("  {:?}", qualify(&kernel));
                for module in module_closure(&kernel, &["kvm_amd", "kvm_intel"])? {
                    println!("  {} ({} bytes)", module.display(), read_module(&module)?.len());
                }
            }
        }
    }
    for listed in list(&cache, &mut say)? {
        println!("{listed}");
    }
    Ok(())
}
