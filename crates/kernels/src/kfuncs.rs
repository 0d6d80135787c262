// SPDX-License-Identifier: GPL-2.0-only
//! Whether a kernel's BTF shows programs the prototypes that they can call.
//!
//! In kernels from 7.0 or so on, many sched_ext kfuncs take a last argument that the verifier fills in, a
//! `struct bpf_prog_aux *`. At build time such a kfunc is split in two: the name that programs call loses the
//! argument, and a twin whose name ends in `_impl` keeps it. The split needs a mark on the kfunc, which pahole
//! writes; where the mark is missing, the name keeps the argument, and no program that calls it without loads.
//! It can go wrong for some kfuncs only: Debian's 7.2.12+deb13, made with pahole 1.30, has 28 split and 21 not.
//! 7.2.13+deb14, made with 1.32, has 49 split. So the prototypes themselves are looked at, not the version of
//! the tool.

use btf_rs::{Btf, Func, Parameter, Type};
use object::{Object, ObjectSection};

/// What is wrong with a BTF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A sentence without its subject.
    Unusable(String),
    /// Names of kfuncs that still show their implicit argument.
    Unsplit(Vec<String>),
}

impl Fault {
    /// A sentence without its subject, with pahole's version (130 for 1.30) if it is known.
    pub(crate) fn with_pahole(&self, version: Option<u32>) -> String {
        match self {
            Fault::Unusable(why) => why.clone(),
            Fault::Unsplit(names) => {
                let first = names.first().map_or("none", String::as_str);
                let which = if names.len() > 1 { "kfuncs" } else { "kfunc" };
                let maker = version.map(|v| format!(", made with pahole {}.{:02},", v / 100, v % 100));
                format!(
                    "its BTF{} gives {} sched_ext {which} a wrong prototype ({first} keeps its implicit argument), so schedulers do not load",
                    maker.unwrap_or_default(),
                    names.len(),
                )
            }
        }
    }
}

/// Looks at all sched_ext kfuncs of a kernel.
pub(crate) fn check(elf: &[u8]) -> Result<(), Fault> {
    let unusable = |why: String| Fault::Unusable(why);
    let file = object::File::parse(elf).map_err(|e| unusable(format!("its image holds no ELF file: {e}")))?;
    let section = file.section_by_name(".BTF").ok_or_else(|| unusable("it has no BTF".into()))?;
    let bytes = section.data().map_err(|e| unusable(format!("its BTF cannot be read: {e}")))?;
    let btf = Btf::from_bytes(bytes).map_err(|e| unusable(format!("its BTF cannot be read: {e}")))?;
    check_btf(&btf)
}

fn check_btf(btf: &Btf) -> Result<(), Fault> {
    let mut any = false;
    let mut unsplit = Vec::new();
    let (first, last) = btf.base().type_id_range();
    for id in first..=last {
        let Ok(Type::Func(function)) = btf.resolve_type_by_id(id) else { continue };
        let Ok(name) = btf.resolve_name(&function) else { continue };
        let public = name.trim_start_matches('_').starts_with("scx_bpf_") && !name.ends_with("_impl");
        if public {
            any = true;
            if shows_implicit(btf, &function) {
                unsplit.push(name);
            }
        }
    }
    match (any, unsplit.is_empty()) {
        (false, _) => Err(Fault::Unusable("its BTF knows no sched_ext kfunc".into())),
        (true, false) => Err(Fault::Unsplit(unsplit)),
        (true, true) => Ok(()),
    }
}

fn shows_implicit(btf: &Btf, function: &Func) -> bool {
    let Ok(Type::FuncProto(prototype)) = btf.resolve_chained_type(function) else { return false };
    prototype.parameters.iter().any(|parameter| is_prog_aux(btf, parameter))
}

/// An argument that the verifier fills in. Before it was implicit, programs passed NULL for one named `…__prog`.
fn is_prog_aux(btf: &Btf, parameter: &Parameter) -> bool {
    if btf.resolve_name(parameter).is_ok_and(|name| name.ends_with("__prog")) {
        return false;
    }
    let Ok(Type::Ptr(pointer)) = btf.resolve_chained_type(parameter) else { return false };
    let mut target = btf.resolve_chained_type(&pointer);
    while let Ok(Type::Const(inner)) = &target {
        target = btf.resolve_chained_type(inner);
    }
    match target {
        Ok(Type::Struct(target)) => btf.resolve_name(&target).is_ok_and(|name| name == "bpf_prog_aux"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A BTF with `struct bpf_prog_aux` (1), `const` of it (2), a pointer to that (3), an int (4), and functions,
    /// each with one parameter of a type and a name.
    fn btf(functions: &[(&str, &str, u32)]) -> Btf {
        const STRUCT: u32 = 4;
        const POINTER: u32 = 2;
        const CONST: u32 = 10;
        const INT: u32 = 1;
        const FUNC: u32 = 12;
        const PROTO: u32 = 13;
        let mut strings = vec![0];
        let mut types = Vec::new();
        let mut name = |text: &str| {
            let at = strings.len() as u32;
            strings.extend(text.bytes().chain([0]));
            at
        };
        types.extend([name("bpf_prog_aux"), STRUCT << 24, 0]);
        types.extend([0, CONST << 24, 1]);
        types.extend([0, POINTER << 24, 2]);
        types.extend([name("int"), INT << 24, 4, 32]);
        let mut next = 5;
        for (function, parameter, kind) in functions {
            types.extend([0, PROTO << 24 | 1, 0, name(parameter), *kind]);
            types.extend([name(function), FUNC << 24, next]);
            next += 2;
        }
        let types: Vec<u8> = types.into_iter().flat_map(u32::to_le_bytes).collect();
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        for word in [24, 0, types.len() as u32, types.len() as u32, strings.len() as u32] {
            bytes.extend(u32::to_le_bytes(word));
        }
        bytes.extend(types);
        bytes.extend(strings);
        Btf::from_bytes(&bytes).unwrap()
    }

    const AUX: u32 = 3;
    const INT: u32 = 4;

    #[test]
    fn split_kfuncs_are_good() {
        let good =
            [("scx_bpf_kick_cpu", "cpu", INT), ("scx_bpf_kick_cpu_impl", "aux", AUX), ("other", "aux", AUX)];
        assert_eq!(check_btf(&btf(&good)), Ok(()));
        assert_eq!(check_btf(&btf(&[("scx_bpf_old", "aux__prog", AUX)])), Ok(()));
        assert_eq!(check_btf(&btf(&[("scx_bpf_named_aux", "aux", INT)])), Ok(()));
    }

    #[test]
    fn one_unsplit_kfunc_is_enough() {
        let mixed = [("scx_bpf_a", "aux", INT), ("scx_bpf_a_impl", "aux", AUX), ("__scx_bpf_b", "aux", AUX)];
        assert_eq!(check_btf(&btf(&mixed)), Err(Fault::Unsplit(vec!["__scx_bpf_b".into()])));
    }

    #[test]
    fn a_kernel_without_sched_ext_is_told() {
        assert!(matches!(check_btf(&btf(&[("other", "x", INT)])), Err(Fault::Unusable(_))));
        assert!(check(b"kernel").unwrap_err().with_pahole(None).contains("no ELF"));
    }

    #[test]
    fn the_reason_names_what_is_wrong() {
        let fault = Fault::Unsplit(vec!["scx_bpf_a".into(), "scx_bpf_b".into()]);
        let why = fault.with_pahole(Some(130));
        assert!(
            why.contains("2 sched_ext kfuncs") && why.contains("scx_bpf_a") && why.contains("pahole 1.30"),
            "{why}"
        );
        assert!(!fault.with_pahole(None).contains("pahole"));
    }
}
