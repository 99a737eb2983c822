//! Each instruction of Hopper is spelled, and assembled by ptxas.

#![allow(clippy::unwrap_used)] // They are tests.

use super::*;
use crate::ptx::descriptor::{Layout, Swizzle};
use crate::ptx::{Binary, Code, Compare, Kernel, Module, Parameter, SharedArray, Space};
use wengert_ci::toolkit::Toolkit;

/// A kernel with this code, and 1 KiB of shared memory.
fn module(code: Code) -> Module {
    let kernel = Kernel {
        name: "k".into(),
        remark: "Instructions of Hopper.".into(),
        parameters: vec![Parameter { name: "x".into(), ty: Type::U64, align: 16 }],
        threads: 128,
        resident: 1,
        shared: vec![SharedArray { name: "tile".into(), align: 1024, bytes: 16384 }],
        dynamic_shared: false,
        early: true,
        local: vec![],
        code,
    };
    Module::new(vec![], vec![kernel])
}

/// The text of a module that ptxas assembles for `sm_90a`.
fn assembled(code: Code) -> String {
    let text = module(code).to_string();
    Toolkit::find().unwrap().check_ptx(&text, "sm_90a").unwrap_or_else(|e| panic!("{e}\n{text}"));
    text
}

fn spelled(inst: Hopper) -> String {
    Inst::Hopper(inst).to_string()
}

fn words(code: &mut Code, count: usize) -> Vec<Reg> {
    (0..count).map(|_| code.mov(Type::F32, 0f32)).collect()
}

/// A predicate that holds.
fn always(code: &mut Code) -> Reg {
    let zero = code.mov(Type::S32, 0);
    code.compare(Compare::Eq, Type::S32, zero, 0)
}

/// The products that PTX has of these types.
fn products(code: &mut Code, operands: [Type; 2], columns: usize) -> Vec<Product> {
    let tile = code.mov(Type::U32, Operand::Symbol("tile".into()));
    let layout = Layout { swizzle: Swizzle::Bytes128, leading: 8192, stride: 1024 };
    let descriptor = code.descriptor(tile, layout);
    let adds = always(code);
    let fragment: [Reg; 4] = words(code, 4).try_into().unwrap();
    let mut found = vec![];
    for a in [Left::Shared(descriptor), Left::Registers(fragment)] {
        for transposed in [[false; 2], [true, false], [false, true], [true; 2]] {
            let in_registers = matches!(a, Left::Registers(_));
            let halves = operands[0].bytes() == 2;
            if (!halves && transposed != [false; 2]) || (in_registers && transposed[0]) {
                continue;
            }
            let d = words(code, columns / 2);
            found.push(Product::new(operands, d, a, descriptor, adds, transposed));
        }
    }
    found
}

#[test]
fn products_are_spelled() {
    let mut code = Code::new();
    let all = products(&mut code, [Type::BF16; 2], 8);
    let texts: Vec<String> = all.into_iter().map(|p| spelled(Hopper::Product(p))).collect();
    let name = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16";
    assert_eq!(texts[0], format!("{name} {{%r7, %r8, %r9, %r10}}, %d1, %d1, %p0, 1, 1, 0, 0"));
    assert!(texts[2].ends_with(", %d1, %d1, %p0, 1, 1, 0, 1"), "{}", texts[2]);
    assert!(texts[3].ends_with(", %d1, %d1, %p0, 1, 1, 1, 1"), "{}", texts[3]);
    assert!(texts[4].ends_with(", {%r3, %r4, %r5, %r6}, %d1, %p0, 1, 1, 0"), "{}", texts[4]);
    assert!(texts[5].ends_with(", {%r3, %r4, %r5, %r6}, %d1, %p0, 1, 1, 1"), "{}", texts[5]);
    assert_eq!(texts.len(), 6);
    for (operands, shape) in [
        ([Type::F16; 2], "m64n16k16.f32.f16.f16 "),
        ([Type::TF32; 2], "m64n16k8.f32.tf32.tf32 "),
        ([Type::E4M3, Type::E5M2], "m64n16k32.f32.e4m3.e5m2 "),
    ] {
        let all = products(&mut code, operands, 16);
        assert_eq!(all.len(), if operands[0] == Type::F16 { 6 } else { 2 });
        let text = spelled(Hopper::Product(all[0].clone()));
        assert!(text.starts_with(&format!("wgmma.mma_async.sync.aligned.{shape}")), "{text}");
        assert_eq!(text.ends_with(", 1, 1"), operands[0] != Type::F16, "{text}");
    }
}

/// Products of every type, width and place of the operands, and what stands around them.
#[test]
fn products_assemble() {
    let mut code = Code::new();
    let mut all = vec![];
    for operands in [
        [Type::BF16; 2],
        [Type::F16; 2],
        [Type::TF32; 2],
        [Type::E4M3; 2],
        [Type::E4M3, Type::E5M2],
        [Type::E5M2, Type::E4M3],
    ] {
        all.extend(products(&mut code, operands, 8));
        all.extend(products(&mut code, operands, 64));
    }
    code.push(Inst::Hopper(Hopper::ProxyFence));
    code.push(Inst::Barrier);
    code.push(Inst::Hopper(Hopper::ProductFence));
    let base = code.load(Space::Param, Type::U64, Operand::Symbol("x".into()), 0);
    for product in all {
        code.push(Inst::Hopper(Hopper::Product(product.clone())));
        code.push(Inst::Hopper(Hopper::ProductCommit));
        code.push(Inst::Hopper(Hopper::ProductWait(0)));
        code.store(Space::Global, Type::F32, base, 0, product.d[0]);
    }
    let text = assembled(code);
    assert!(text.starts_with(".version 8.0\n.target sm_90a\n"), "{text}");
    for line in [
        "    fence.proxy.async.shared::cta;\n",
        "    wgmma.fence.sync.aligned;\n",
        "    wgmma.commit_group.sync.aligned;\n",
        "    wgmma.wait_group.sync.aligned 0;\n",
    ] {
        assert!(text.contains(line), "{line}");
    }
}

/// A thread copies bytes and all wait for them, then half of the registers are given back.
#[test]
fn barriers_and_copies_assemble() {
    let mut code = Code::new();
    let tile = code.mov(Type::U32, Operand::Symbol("tile".into()));
    let from = code.load(Space::Param, Type::U64, Operand::Symbol("x".into()), 0);
    let at = |offset| Barrier { base: tile.into(), offset };
    let to = code.binary(Binary::Add, Type::U32, tile, 1024);
    code.push(Inst::Hopper(Hopper::Initialise(at(0), 1)));
    code.push(Inst::Hopper(Hopper::Initialise(at(8), 128)));
    code.push(Inst::Hopper(Hopper::InitialisationFence));
    code.push(Inst::Barrier);
    code.push(Inst::Hopper(Hopper::ArriveExpecting(at(0), 256.into())));
    code.push(Inst::Hopper(Hopper::BulkCopy {
        to: to.into(),
        from: from.into(),
        bytes: 256.into(),
        barrier: at(0),
    }));
    code.push(Inst::Hopper(Hopper::ArriveAfterCopies(at(8))));
    let (wait, done) = (code.label(), code.reg(Width::Pred));
    code.place(wait);
    code.push(Inst::Hopper(Hopper::TryWait(done, at(0), 0.into())));
    code.branch_unless(done, wait);
    code.push(Inst::Hopper(Hopper::Arrive(at(8))));
    let text = assembled(code.clone());
    assert!(text.starts_with(".version 8.0\n.target sm_90\n"), "{text}");
    code.push(Inst::Hopper(Hopper::Registers(Registers::Decrease(40))));
    code.push(Inst::Hopper(Hopper::Registers(Registers::Increase(232))));
    let text = assembled(code);
    assert!(text.starts_with(".version 8.0\n.target sm_90a\n"), "{text}");
    for line in [
        "mbarrier.init.shared.b64 [%r0+8], 128;",
        "fence.mbarrier_init.release.cluster;",
        "mbarrier.arrive.expect_tx.shared.b64 _, [%r0], 256;",
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d0], 256, \
         [%r0];",
        "cp.async.mbarrier.arrive.noinc.shared.b64 [%r0+8];",
        "mbarrier.try_wait.parity.shared.b64 %p0, [%r0], 0;",
        "mbarrier.arrive.shared.b64 _, [%r0+8];",
        "setmaxnreg.dec.sync.aligned.u32 40;",
        "setmaxnreg.inc.sync.aligned.u32 232;",
    ] {
        assert!(text.contains(&format!("    {line}\n")), "{line}\n{text}");
    }
}

#[test]
#[should_panic(expected = "only halves in shared memory are transposed")]
fn other_elements_are_not_transposed() {
    let mut code = Code::new();
    let (d, descriptor) = (words(&mut code, 4), code.reg(Width::B64));
    let adds = code.reg(Width::Pred);
    Product::new([Type::TF32; 2], d, Left::Shared(descriptor), descriptor, adds, [false, true]);
}
