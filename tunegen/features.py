"""LLVM's names of CPU features, as data: declarations are checked against them without loading LLVM.

From LLVM 22.1, as a target machine made with the features "+help" prints them. A test compares them with the LLVM that
is installed.
"""

from __future__ import annotations

LLVM_VERSION = "22.1"

X86_64 = frozenset(
    """
    16bit-mode 32bit-mode 64bit 64bit-mode adx aes allow-light-256-bit amx-avx512 amx-bf16 amx-complex amx-fp16
    amx-fp8 amx-int8 amx-movrs amx-tf32 amx-tile avx avx10.1 avx10.1-512 avx10.2 avx10.2-512 avx2 avx512bf16
    avx512bitalg avx512bw avx512cd avx512dq avx512f avx512fp16 avx512ifma avx512vbmi avx512vbmi2 avx512vl avx512vnni
    avx512vp2intersect avx512vpopcntdq avxifma avxneconvert avxvnni avxvnniint16 avxvnniint8 bmi bmi2 branch-hint
    branchfusion ccmp cf cldemote clflushopt clwb clzero cmov cmpccxadd crc32 cx16 cx8 egpr enqcmd ermsb evex512
    f16c false-deps-getmant false-deps-lzcnt-tzcnt false-deps-mulc false-deps-mullq false-deps-perm
    false-deps-popcnt false-deps-range fast-11bytenop fast-15bytenop fast-7bytenop fast-bextr fast-dpwssd
    fast-gather fast-hops fast-imm16 fast-lzcnt fast-movbe fast-scalar-fsqrt fast-scalar-shift-masks
    fast-shld-rotate fast-variable-crosslane-shuffle fast-variable-perlane-shuffle fast-vector-fsqrt
    fast-vector-shift-masks faster-shift-than-shuffle fma fma4 fsgsbase fsrm fxsr gfni harden-sls-ijmp
    harden-sls-ret hreset idivl-to-divb idivq-to-divl inline-asm-use-gpr32 invpcid kl lea-sp lea-uses-ag lvi-cfi
    lvi-load-hardening lwp lzcnt macrofusion mmx movbe movdir64b movdiri movrs mwaitx ndd nf no-bypass-delay
    no-bypass-delay-blend no-bypass-delay-mov no-bypass-delay-shuffle nopl pad-short-functions pclmul pconfig pku
    popcnt ppx prefer-128-bit prefer-256-bit prefer-legacy-setcc prefer-mask-registers prefer-movmsk-over-vtest
    prefer-no-gather prefer-no-scatter prefetchi prfchw ptwrite push2pop2 raoint rdpid rdpru rdrnd rdseed retpoline
    retpoline-external-thunk retpoline-indirect-branches retpoline-indirect-calls rtm sahf sbb-dep-breaking
    serialize seses sgx sha sha512 shstk slow-3ops-lea slow-incdec slow-lea slow-pmaddwd slow-pmulld slow-pmullq
    slow-shld slow-two-mem-ops slow-unaligned-mem-16 slow-unaligned-mem-32 sm3 sm4 soft-float sse sse-unaligned-mem
    sse2 sse3 sse4.1 sse4.2 sse4a ssse3 tagged-globals tbm tsxldtrk tuning-fast-imm-vector-shift uintr
    use-glm-div-sqrt-costs use-slm-arith-costs usermsr vaes vpclmulqdq vzeroupper waitpkg wbnoinvd widekl x32 x87
    xop xsave xsavec xsaveopt xsaves zu
    """.split()
)

AARCH64 = frozenset(
    """
    CONTEXTIDREL2 a320 a35 a510 a520 a520ae a53 a55 a57 a64fx a65 a710 a715 a72 a720 a720ae a73 a75 a76 a77 a78
    a78ae a78c addr-lsl-slow-14 aes aggressive-fma aggressive-interleaving all alternate-sextload-cvt-f32-pattern
    altnzcv alu-lsl-fast am ampere1 ampere1a ampere1b ampere1c amvs apple-a10 apple-a11 apple-a12 apple-a13
    apple-a14 apple-a15 apple-a16 apple-a17 apple-a7 apple-m4 apple-m5 arith-bcc-fusion arith-cbz-fusion
    ascend-store-address avoid-ldapur balance-fp-ops bf16 brbe bti btie c1-nano c1-premium c1-pro c1-ultra
    call-saved-x10 call-saved-x11 call-saved-x12 call-saved-x13 call-saved-x14 call-saved-x15 call-saved-x18
    call-saved-x8 call-saved-x9 carmel ccdp ccidx ccpp chk clrbhb cmh cmp-bcc-fusion cmpbr complxnum cortex-a725
    cortex-r82 cortex-r82ae cortex-x1 cortex-x2 cortex-x3 cortex-x4 cortex-x925 cpa crc crypto cssc d128
    disable-fast-inc-vl disable-latency-sched-heuristic disable-ldp disable-maximize-scalable-bandwidth disable-stp
    disable-unpredicated-ld-st-lower dit dotprod ecv el2vmsa el3 enable-select-opt ete execute-only
    exynos-cheap-as-move exynosm3 exynosm4 f16f32dot f16f32mm f16mm f32mm f64mm f8f16mm f8f32mm falkor faminmax fgt
    fix-cortex-a53-835769 flagm fmv force-32bit-jump-tables fp-armv8 fp16fml fp8 fp8dot2 fp8dot4 fp8fma fpac fprcvt
    fptoint fujitsu-monaka fullfp16 fuse-address fuse-addsub-2reg-const1 fuse-adrp-add fuse-aes fuse-arith-logic
    fuse-crypto-eor fuse-csel fuse-cset fuse-literals gcie gcs harden-sls-blr harden-sls-nocomdat harden-sls-retbr
    hbc hcx i8mm ite jsconv kryo ldp-aligned-only lor ls64 lscp lse lse128 lse2 lsfe lsui lut
    max-interleave-factor-4 mec mops mops-go mpam mpamv2 mte mtetc neon neoverse512tvb neoversee1 neoversen1
    neoversen2 neoversen3 neoversev1 neoversev2 neoversev3 neoversev3AE nmi no-bti-at-return-twice no-neg-immediates
    no-sve-fp-ld1r no-zcz-fpr64 nv occmo olympus oryon-1 outline-atomics pan pan-rwv pauth pauth-lr pcdphint perfmon
    poe2 pops predictable-select-expensive predres prfm-slc-target rand ras rasv2 rcpc rcpc-immo rcpc3 rdm
    reserve-lr-for-ra reserve-x1 reserve-x10 reserve-x11 reserve-x12 reserve-x13 reserve-x14 reserve-x15 reserve-x18
    reserve-x2 reserve-x20 reserve-x21 reserve-x22 reserve-x23 reserve-x24 reserve-x25 reserve-x26 reserve-x27
    reserve-x28 reserve-x3 reserve-x4 reserve-x5 reserve-x6 reserve-x7 reserve-x9 rme saphira sb sel2 sha2 sha3
    slow-misaligned-128store slow-paired-128 slow-strqro-store sm4 sme sme-b16b16 sme-f16f16 sme-f64f64 sme-f8f16
    sme-f8f32 sme-fa64 sme-i16i64 sme-lutv2 sme-mop4 sme-tmop sme2 sme2p1 sme2p2 sme2p3 spe spe-eef specres2
    specrestrict ssbs ssve-aes ssve-bitperm ssve-fexpa ssve-fp8dot2 ssve-fp8dot4 ssve-fp8fma store-pair-suppress
    stp-aligned-only strict-align sve sve-aes sve-aes2 sve-b16b16 sve-b16mm sve-bfscale sve-bitperm sve-f16f32mm
    sve-sha3 sve-sm4 sve2 sve2-aes sve2-bitperm sve2-sha3 sve2-sm4 sve2p1 sve2p2 sve2p3 tagged-globals tev the
    thunderx thunderx2t99 thunderx3t110 thunderxt81 thunderxt83 thunderxt88 tlb-rmi tlbid tlbiw tpidr-el1 tpidr-el2
    tpidr-el3 tpidrro-el0 tracev8.4 trbe tsv110 uaops use-experimental-zeroing-pseudos
    use-fixed-over-scalable-if-equal-cost use-postra-scheduler use-reciprocal-square-root use-wzr-to-vec-move v8.1a
    v8.2a v8.3a v8.4a v8.5a v8.6a v8.7a v8.8a v8.9a v8a v8r v9.1a v9.2a v9.3a v9.4a v9.5a v9.6a v9.7a v9a vh wfxt xs
    zcm-fpr128 zcm-fpr32 zcm-fpr64 zcm-gpr32 zcm-gpr64 zcz-fp-workaround zcz-fpr128 zcz-gpr32 zcz-gpr64
    """.split()
)

KNOWN = X86_64 | AARCH64

NEEDS = {
    "sse2": ("sse",),
    "sse3": ("sse2",),
    "ssse3": ("sse3",),
    "sse4.1": ("ssse3",),
    "sse4.2": ("sse4.1",),
    "avx": ("sse4.2",),
    "avx2": ("avx",),
    "f16c": ("avx",),
    "fma": ("avx",),
    "sse4a": ("sse3",),
    "fma4": ("avx", "sse4a"),
    "xop": ("fma4",),
    "aes": ("sse2",),
    "pclmul": ("sse2",),
    "gfni": ("sse2",),
    "vaes": ("aes", "avx2"),
    "vpclmulqdq": ("avx", "pclmul"),
    "sha": ("sse2",),
    "sha512": ("avx2",),
    "sm3": ("avx",),
    "sm4": ("avx2",),
    "avxvnni": ("avx2",),
    "avxvnniint8": ("avx2",),
    "avxvnniint16": ("avx2",),
    "avxifma": ("avx2",),
    "avxneconvert": ("avx2",),
    "avx512f": ("avx2", "f16c", "fma"),
    "avx10.1": ("avx512f",),
    "avx10.1-512": ("avx10.1",),
    "avx10.2": ("avx10.1",),
    "avx10.2-512": ("avx10.2",),
    "fp-armv8": (),
    "neon": ("fp-armv8",),
    "dotprod": ("neon",),
    "fullfp16": ("fp-armv8",),
    "sve": ("fullfp16",),
    "sve2": ("sve",),
}
"""Which features a feature is built on. Every other `avx512*` needs avx512f, every other `sve*` sve."""


def needs(name: str) -> tuple[str, ...]:
    """The features that `name` is directly built on."""
    if name in NEEDS:
        return NEEDS[name]
    for stem, base in (("avx512", "avx512f"), ("sve2", "sve2"), ("sve", "sve")):
        if name.startswith(stem):
            return (base,)
    return ()


def without(features: frozenset[str], masked: str) -> frozenset[str]:
    """`features` without `masked` and all that is built on it."""
    gone = {masked}
    while more := {name for name in features - gone if gone.intersection(needs(name))}:
        gone |= more
    return features - gone
