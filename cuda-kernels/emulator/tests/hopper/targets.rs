//! Instructions that the target lacks, and forms that do not exist, are refused when the text is
//! read.

use wengert_emulator::Module;

fn refusal(target: &str, body: &str) -> String {
    let text = format!(
        ".version 8.0\n.target {target}\n.address_size 64\n.visible .entry k()\n{{\n    \
         .shared .align 128 .b8 s[256];\n    .reg .b32 %r<4>;\n    .reg .b64 %l<4>;\n    \
         .reg .f32 %d<4>;\n    .reg .pred %p<2>;\n{body}\n    ret;\n}}\n"
    );
    match Module::parse(&text) {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    }
}

const WGMMA: &str = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 \
                     {%d0, %d1, %d2, %d3}, %l0, %l1, %p0, 1, 1, 0, 0;";

#[test]
fn instructions_need_their_target() {
    let cases = [
        (WGMMA, "sm_90a", "sm_90"),
        ("wgmma.fence.sync.aligned;", "sm_90a", "sm_100a"),
        ("setmaxnreg.dec.sync.aligned.u32 24;", "sm_90a", "sm_90"),
        ("mbarrier.init.shared.b64 [s], 1;", "sm_80", "sm_75"),
        ("mbarrier.try_wait.parity.shared.b64 %p0, [s], 0;", "sm_90", "sm_80"),
        ("cp.async.bulk.commit_group;", "sm_90", "sm_89"),
        ("fence.proxy.async;", "sm_90", "sm_80"),
        ("barrier.cluster.arrive;", "sm_90", "sm_80"),
        ("mapa.shared::cluster.u32 %r0, %r1, %r2;", "sm_90", "sm_80"),
        ("griddepcontrol.wait;", "sm_90", "sm_80"),
    ];
    for (instruction, good, bad) in cases {
        assert_eq!(refusal(good, instruction), "", "{instruction}");
        let error = refusal(bad, instruction);
        assert!(error.contains("needs `.target"), "{instruction}: {error:?}");
    }
}

#[test]
fn forms_that_do_not_exist_are_refused() {
    let cases = [
        (WGMMA.replace("m64n8", "m64n12"), "no shape"),
        (WGMMA.replace("k16", "k32"), "no shape"),
        (WGMMA.replace("%d2, %d3}", "%d2}"), "D has 4 registers"),
        (WGMMA.replace("1, 1, 0, 0", "2, 1, 0, 0"), "1 or -1"),
        (WGMMA.replace("1, 1, 0, 0", "1, 1, 0, 2"), "0 or 1"),
        (WGMMA.replace("bf16.bf16", "bf16.f16"), "does not multiply"),
        ("setmaxnreg.dec.sync.aligned.u32 20;".to_owned(), "multiple of 8"),
        ("setmaxnreg.dec.sync.aligned.u32 28;".to_owned(), "multiple of 8"),
        ("wgmma.wait_group.sync.aligned 8;".to_owned(), "0 to 7"),
        ("griddepcontrol.launch;".to_owned(), "launch_dependents"),
        (WGMMA.replace("mma_async", "mma_async.sp"), "`.sp` is not supported"),
        (WGMMA.replace("n8k16.f32.bf16.bf16", "n8k256.s32.b1.b1"), "has the types"),
        (
            "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r0], %r1, [%r2];"
                .to_owned(),
            "takes 2 operands",
        ),
        (
            "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes \
             [s], [%l0, {%r0, %r0, %r0}], [s], {%r0};"
                .to_owned(),
            "operands",
        ),
        (
            "tensormap.replace.tile.global_address.global.b1024.b64 [%l0], %l1;".to_owned(),
            "is not supported",
        ),
        (
            "cp.async.bulk.global.shared::cta.mbarrier::complete_tx::bytes [%l0], [s], 16;"
                .to_owned(),
            "bulk_group",
        ),
        (
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes \
             [s], [%l0, {%r0}], [s];"
                .to_owned(),
            "2 coordinates",
        ),
    ];
    for (instruction, part) in cases {
        let error = refusal("sm_90a", &instruction);
        assert!(error.contains(part), "{instruction}: {error:?}");
    }
}
