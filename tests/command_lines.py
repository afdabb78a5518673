"""Command lines with what comes of them: `(line, exit code, what is said)`. What is said stands in the output where the
code is 0, else in the error.

The files that they name are made by `test_command_lines.py`: `m.onnx` a perceptron, `o.onnx` one of open size, `c.onnx`
convolutions, `t.tflite` integers, `r.relay` and `q.relay` text of known and open size, `p.pt` an archive that is none
of torch's; `g.tar`, `a.tar`, `l.tar`, `v.tar` packages (graph, aot, library format, tar of objects), `k.tar` a library
of C text, `w.tar` one for open sizes, `f.tar` one for aarch64, `s.so` a library, `b.tar` a damaged package; `in.npz`,
`other.npz`, `short.npz`, `text.npz` inputs; `autotvm.json`, `ansor.json`, `log.json` records, the last without any.
"""

from __future__ import annotations

Case = tuple[str, int, str]

USE: tuple[Case, ...] = (
    ("tvmc", 1, ""),
    ("tvmc --help", 0, "Usage: tvmc"),
    ("tvmc -h", 0, "compile  Compile the model FILE"),
    ("tvmc --version", 0, "tilewright "),
    ("tvmc walk", 2, "walk"),
    ("tvmc --bogus", 2, "--bogus"),
    ("tvmc compile", 2, "Missing argument"),
    ("tvmc compile --help", 0, "--executor-aot-unpacked-api"),
    ("tvmc run -h", 0, "Examples:"),
    ("tvmc run", 2, "Missing argument"),
    ("tvmc compile m.onnx", 2, "--target"),
    ("tvmc compile m.onnx --target", 2, "--target"),
    ("tvmc compile m.onnx --target llvm --nosuch", 2, "--nosuch"),
    ("tvmc compile m.onnx c.onnx --target llvm", 2, "c.onnx"),
    ("tvmc compile m.onnx --target bnns, llvm", 2, "ends in a comma; quote a target"),
    ("tvmc compile m.onnx --target llvm -device=arm_cpu", 2, "-d"),
    ("tvmc compile m.onnx --target llvm -O 9", 2, "--opt-level"),
    ("tvmc compile m.onnx --target llvm -O two", 2, "--opt-level"),
    ("tvmc compile m.onnx --target llvm -f elf", 2, "elf"),
    ("tvmc compile m.onnx --target llvm --executor jit", 2, "jit"),
    ("tvmc compile m.onnx --target llvm --runtime rust", 2, "rust"),
    ("tvmc compile m.onnx --target llvm --model-format caffe", 2, "caffe"),
    ("tvmc run g.tar --repeat 0", 2, "--repeat"),
    ("tvmc run g.tar --number x", 2, "--number"),
    ("tvmc run g.tar --print-top 0", 2, "--print-top"),
    ("tvmc run g.tar --fill-mode nines", 2, "nines"),
    ("tvmc run g.tar --inputs nosuch.npz", 2, "nosuch.npz"),
    ("tilewright", 2, ""),
    ("tilewright --help", 0, "Usage: tilewright"),
    ("tilewright --version", 0, "tilewright "),
    ("tilewright walk", 2, "walk"),
    ("tilewright compile", 2, "Missing argument"),
    ("tilewright compile nosuch.onnx", 2, "nosuch.onnx"),
    ("tilewright compile m.onnx -o out.exe", 2, "has none of the supported extensions: .so, .tar"),
    ("tilewright compile m.onnx --threads 0", 2, "--threads"),
    ("tilewright compile m.onnx --opt-level 5", 2, "--opt-level"),
    ("tilewright offload m.onnx", 2, "--target"),
    ("tilewright quantize m.onnx", 2, "--data"),
    ("tilewright profile", 2, "Missing argument"),
    ("tilewright profile m.onnx --repeat 0", 2, "--repeat"),
    ("tilewright profile m.onnx --format xml", 2, "xml"),
    ("tilewright profile m.onnx --trace run.txt", 2, "has none of the extensions of a trace: .json, .pftrace"),
    ("tilewright profile m.onnx --format csv --memory --no-peaks", 2, "--memory cannot be written in this format"),
    ("tilewright compile m.onnx --max-arena lots", 2, "'lots' is not a number of bytes; write 300000, 256K or 1M"),
    ("tilewright run m.onnx -o out.txt", 2, "does not end in .npz"),
    ("tilewright debug", 2, "Missing command"),
    ("tilewright debug valgrind", 2, "valgrind"),
    ("tilewright debug asan", 2, "Missing argument"),
    ("tilewright debug asan nosuch.py", 1, "'nosuch.py' is not a file"),
    ("tilewright cache --remove", 2, "--remove"),
    ("tilewright cache", 0, "programs"),
)

TARGETS: tuple[Case, ...] = (
    ("tvmc compile m.onnx -f tar --target llvm", 0, "Wrote module.tar"),
    ("tvmc compile m.onnx -f tar --target 'llvm -mcpu=x86-64-v3 -mtriple=x86_64-linux-gnu'", 0, "Wrote"),
    ("tvmc compile m.onnx -f tar --target 'llvm -mtriple=aarch64-linux-gnu -device=arm_cpu'", 0, "Wrote"),
    ("tvmc compile m.onnx -f tar --target '\"llvm\" -mattr=\"+neon\" -mtriple=aarch64-linux-gnu'", 0, "Wrote"),
    (
        "tvmc compile m.onnx -f tar --target '{\"kind\": \"llvm\", \"mcpu\": \"x86-64-v2\", \"mtriple\": "
        "\"x86_64-linux-gnu\"}'", 0, "Wrote"
    ),
    ("tvmc compile m.onnx -f tar --target target.json", 0, "Wrote"),
    (
        "tvmc compile m.onnx -f tar --target llvm --target-llvm-mtriple=aarch64-linux-gnu --target-llvm-mcpu "
        "neoverse-n1", 0, "Wrote"
    ),
    ("tvmc compile m.onnx -f tar --target target.json --target-llvm-num-cores 2", 0, "Wrote"),
    ("tvmc compile c.onnx -f tar --target 'bnns, llvm'", 0, "Wrote"),
    ("tvmc compile c.onnx -f tar --target 'bnns, llvm -mtriple=aarch64-linux-gnu'", 0, "Wrote"),
    ("tvmc compile c.onnx -f tar --target 'npu, llvm'", 0, "Wrote"),
    ("tvmc compile t.tflite -f tar --target 'npu, bnns, llvm'", 0, "Wrote"),
    ("tvmc compile m.onnx --target ''", 4, "the target is empty"),
    ("tvmc compile m.onnx --target nosuch.json", 4, "cannot read 'nosuch.json'"),
    ("tvmc compile m.onnx --target text.npz.json", 4, "not valid JSON"),
    ("tvmc compile m.onnx --target '{\"kind\": '", 4, "not valid JSON"),
    ("tvmc compile m.onnx --target '{\"mcpu\": \"znver4\"}'", 4, "is not a kind of target"),
    ("tvmc compile m.onnx --target lvm", 4, "did you mean 'llvm'?"),
    ("tvmc compile m.onnx --target cuda", 4, "'cuda' is not a kind of target"),
    ("tvmc compile m.onnx --target bnns", 4, "'bnns' computes only parts of a network; add a processor"),
    ("tvmc compile m.onnx --target 'npu, bnns'", 4, "'bnns' computes only parts of a network"),
    ("tvmc compile m.onnx --target 'llvm, bnns'", 4, "the processor comes last"),
    ("tvmc compile m.onnx --target 'llvm, llvm'", 4, "names llvm twice"),
    ("tvmc compile m.onnx --target 'bnns, bnns, llvm'", 4, "names bnns twice"),
    ("tvmc compile m.onnx --target 'llvm, llvm -mcpu=znver4, llvm'", 4, "names 3 processors"),
    ("tvmc compile m.onnx --target 'bnns,, llvm'", 4, "an empty part before or after a comma"),
    ("tvmc compile m.onnx --target 'bnns,'", 2, "ends in a comma; quote a target"),
    ("tvmc compile m.onnx --target 'npu -size, llvm'", 4, "write -name=value"),
    ("tvmc compile m.onnx --target 'npu size=3, llvm'", 4, "write -name=value"),
    ("tvmc compile m.onnx --target \"npu -a='b, llvm\"", 4, "No closing quotation"),
    ("tvmc compile m.onnx --target 'nosuch, llvm'", 4, "there is no target 'nosuch' to partition for"),
    ("tvmc compile m.onnx --target 'npu -nosuch=1, llvm'", 4, "nosuch"),
    ("tvmc compile m.onnx --target 'llvm -mcpu=zz80'", 4, "CPU 'zz80' is not known"),
    ("tvmc compile m.onnx --target 'llvm -mtriple=z80-linux'", 4, "not a triple"),
    ("tvmc compile m.onnx --target 'llvm -mcpu=native -mtriple=aarch64-linux-gnu'", 4, "is this machine"),
    ("tvmc compile m.onnx --target 'llvm -mattr=neon -mtriple=aarch64-linux-gnu'", 4, "write +neon or -neon"),
    ("tvmc compile m.onnx --target 'llvm -num-cores=many'", 4, "must be a number"),
    ("tvmc compile m.onnx --target 'llvm -link-params=1'", 4, "is not an option of a target"),
    ("tvmc compile m.onnx --target 'llvm mcpu=znver4'", 4, "options start with a dash"),
    ("tvmc compile m.onnx --target llvm --target-npu-size=4", 4, "the target 'llvm' has no npu"),
    ("tvmc compile m.onnx --target llvm --target-cuda-arch=sm_80", 4, "there is no target of that name"),
    ("tvmc compile m.onnx --target llvm --target-llvm-mcpu", 4, "--target-llvm-mcpu has no value"),
    ("tvmc compile m.onnx --target llvm --target-llvm-mcp=x", 4, "did you mean 'mcpu'?"),
    ("tvmc compile m.onnx --target 'llvm -mcpu=x86-64' --target-llvm-mcpu=x86-64-v3", 4, "already has mcpu"),
    ("tvmc run g.tar --target-llvm-mcpu=x86-64", 4, "'run' takes no target"),
    ("tilewright compile m.onnx -o o.tar --target target.json", 0, "Wrote o.tar"),
    ("tilewright compile m.onnx -o o.tar --target llvm --target-llvm-mcpu=x86-64-v2", 0, "Wrote o.tar"),
    ("tilewright compile m.onnx -o o.tar --target-llvm-mcpu=x86-64-v2", 0, "Wrote o.tar"),
    ("tilewright compile m.onnx --target 'llvm, llvm'", 1, "names llvm twice"),
    ("tilewright compile m.onnx --target bnns", 1, "'bnns' computes only parts of a network"),
    ("tilewright compile m.onnx --target-npu-size 4", 2, "has no npu"),
    ("tilewright compile m.onnx --target nosuch.json", 2, "cannot read 'nosuch.json'"),
    ("tilewright check m.onnx --target-llvm-mcpu=x86-64", 2, "'check' takes no target"),
    ("tilewright offload t.tflite --target npu", 0, "npu: "),
    ("tilewright offload t.tflite --target llvm", 2, "names no accelerator"),
)

COMPILING: tuple[Case, ...] = (
    ("tvmc compile m.onnx --target llvm", 0, "Wrote module.tar"),
    ("tvmc compile m.onnx --target llvm -f so -o p.tar", 0, "Wrote p.tar"),
    ("tvmc compile m.onnx --target llvm -f mlf -o p.tar", 0, "Wrote p.tar"),
    ("tvmc compile m.onnx --target llvm -f tar --output p", 0, "Wrote p "),
    ("tvmc compile t.tflite --target llvm -f tar", 0, "Wrote"),
    ("tvmc compile t.tflite --target llvm -f tar --model-format tflite", 0, "Wrote"),
    ("tvmc compile r.relay --target llvm -f tar", 0, "Wrote"),
    ("tvmc compile r.relay --target llvm -f tar --model-format relay", 0, "Wrote"),
    ("tvmc compile q.relay --target llvm -f tar --input-shapes x:[2,4]", 0, "Wrote"),
    ("tvmc compile o.onnx --target llvm -f tar --input-shapes x:[3,16]", 0, "Wrote"),
    ("tvmc compile o.onnx --target llvm -f tar --input-shapes x:[-1,16]", 0, "Wrote"),
    ("tvmc compile o.onnx --target llvm -f tar --input-shapes x:[0,16]", 0, "Wrote"),
    ("tvmc compile m.onnx --target llvm -f tar -O0", 0, "Wrote"),
    ("tvmc compile m.onnx --target llvm -f tar --opt-level 1", 0, "Wrote"),
    ("tvmc compile m.onnx --target llvm -f tar --disabled-pass FuseOps,FoldConstant", 0, "Wrote"),
    (
        "tvmc compile m.onnx --target llvm -f tar --pass-config relay.FuseOps.max_depth=2 --pass-config "
        "relay.FoldGate.enabled=0", 0, "Wrote"
    ),
    ("tvmc compile m.onnx --target llvm -f tar --module-name net", 0, "Wrote"),
    ("tvmc compile m.onnx --target llvm -f tar --dump-code relay,tir,ll,asm", 0, "Wrote"),
    ("tvmc compile c.onnx --target 'npu, llvm' -f tar --dump-offloads -", 0, "npu: "),
    ("tvmc compile c.onnx --target 'bnns, llvm' -f tar --dump-offloads offloads.txt", 0, "Wrote"),
    ("tvmc compile c.onnx --target llvm -f tar --desired-layout NHWC", 0, "Wrote"),
    ("tvmc compile c.onnx --target llvm -f tar --desired-layout NHWC:HWIO --desired-layout-ops nn.conv2d", 0, "Wrote"),
    ("tvmc compile --target llvm --desired-layout NHWC --desired-layout-ops nn.conv2d c.onnx", 2, "Missing argument"),
    (
        "tvmc compile c.onnx --desired-layout NCHW NHWC --desired-layout-ops nn.conv2d nn.max_pool2d --target llvm -f "
        "tar", 0, "Wrote"
    ),
    ("tvmc compile m.onnx --target llvm -f tar --mixed-precision", 0, "Wrote"),
    (
        "tvmc compile m.onnx --target llvm -f tar --mixed-precision --mixed-precision-calculation-type bfloat16", 0,
        "Wrote"
    ),
    (
        "tvmc compile m.onnx --target llvm -f tar --mixed-precision --mixed-precision-acc-type float16 "
        "--mixed-precision-ops nn.dense nn.softmax", 0, "Wrote"
    ),
    ("tvmc compile m.onnx --target llvm -f tar --executor graph --executor-graph-link-params 1", 0, "Wrote"),
    (
        "tvmc compile m.onnx --target llvm -f tar --executor aot --executor-aot-unpacked-api true "
        "--executor-aot-interface-api c", 0, "Wrote"
    ),
    (
        "tvmc compile m.onnx --target llvm -f mlf --executor aot --executor-aot-workspace-byte-alignment 16 "
        "--executor-aot-constant-byte-alignment 8", 0, "Wrote"
    ),
    (
        "tvmc compile m.onnx --target llvm -f mlf --executor-aot-link-params 1 --runtime crt --runtime-crt-system-lib 1", 0, "Wrote"  # noqa: E501
    ),
    ("tvmc compile m.onnx --target llvm -f tar --runtime cpp --runtime-cpp-system-lib 0", 0, "Wrote"),
    (
        "tvmc compile m.onnx --target llvm -f tar --workspace-pools sram --workspace-pools-size-hint-bytes sram:1000000", 0, "Wrote"  # noqa: E501
    ),
    ("tvmc compile m.onnx --target llvm -f tar --workspace-pools sram --workspace-pools-targets sram:llvm", 0, "Wrote"),
    ("tvmc compile m.onnx --target llvm --cross-compiler cc --cross-compiler-options '-O2 -shared'", 0, "Wrote"),
    ("tvmc --config default compile m.onnx -f tar", 0, "Wrote module.tar"),
    ("tvmc --config x86-64-v3 compile m.onnx -f tar", 0, "Wrote"),
    ("tvmc --config aarch64 compile m.onnx -f tar", 0, "Wrote"),
    ("tvmc --config options.json compile m.onnx", 0, "Wrote from_config.tar"),
    ("tvmc --config options.json compile m.onnx -o p.tar", 0, "Wrote p.tar"),
    ("tvmc -v compile m.onnx --target llvm -f tar", 0, "Wrote"),
    ("tvmc compile m.onnx --target llvm -f tar -vvv", 0, "Wrote"),
    ("tilewright compile m.onnx", 0, "Wrote m.tar"),
    ("tilewright compile r.relay -o r.tar", 0, "Wrote r.tar"),
    ("tilewright --config tilewright.json compile m.onnx", 0, "Wrote named.tar"),
    ("tilewright compile m.onnx -o m.so --cross-compiler cc --cross-compiler-options=-O2", 0, "Wrote m.so"),
    ("tilewright compile o.onnx -o o.tar --input-shapes x:[n,16]", 0, "Wrote o.tar"),
    ("tilewright compile m.onnx -o m.tar --mixed-precision bfloat16 -v", 0, "Wrote m.tar"),
    (
        "tilewright compile m.onnx -o m.tar --disabled-pass FuseOps --pass-config relay.FuseOps.max_depth=8", 0,
        "Wrote m.tar"
    ),
    ("tilewright compile m.onnx -o m.tar --dump-code relay", 0, "Wrote m.tar"),
    ("tilewright compile t.tflite -o t.tar --target 'npu, llvm' --require-offload 10%", 0, "Wrote t.tar"),
    ("tilewright check m.onnx", 0, "Gemm"),
    ("tilewright check m.onnx --json", 0, '"operators"'),
)

REFUSED: tuple[Case, ...] = (
    ("tvmc compile nosuch.onnx --target llvm", 4, "does not exist"),
    ("tvmc compile . --target llvm", 4, "does not exist, is a broken link, or a folder"),
    ("tvmc compile text.npz --target llvm", 4, "text.npz"),
    ("tvmc compile net.h5 --target llvm", 4, "there is no importer for Keras"),
    ("tvmc compile net.pb --target llvm", 4, "there is no importer for TensorFlow's graphs"),
    ("tvmc compile net.pdmodel --target llvm", 4, "there is no importer for PaddlePaddle"),
    ("tvmc compile m.onnx --target llvm --model-format keras", 4, "--model-format keras: there is no importer"),
    ("tvmc compile m.onnx --target llvm --model-format tflite", 4, "bytes 4 to 7 are not TFL3"),
    ("tvmc compile bad.relay --target llvm", 4, "bad.relay"),
    ("tvmc compile nomain.relay --target llvm", 4, "has no function @main"),
    ("tvmc compile p.pt --target llvm", 4, "give them with --input-shapes"),
    ("tvmc compile o.onnx --target llvm", 0, "Wrote"),
    ("tvmc compile q.relay --target llvm", 0, "Wrote"),
    ("tvmc compile o.onnx --target llvm --input-shapes x:[-1,16] -f mlf", 4, "leaves sizes of 'x' dynamic"),
    ("tvmc compile o.onnx --target llvm --input-shapes x:[-1,16] --desired-layout NHWC", 4,
     "leaves sizes of 'x' dynamic"),
    ("tvmc compile q.relay --target llvm --input-shapes x:[2,5]", 4, "was given the shape [2, 5]"),
    ("tvmc compile q.relay --target llvm --input-shapes z:[2,4]", 4, "has no input 'z'"),
    ("tvmc compile m.onnx --target llvm --input-shapes x=3", 4, "cannot read 'x=3'"),
    ("tvmc compile m.onnx --target llvm --input-shapes z:[2,16]", 4, "'z'"),
    ("tvmc compile m.onnx --target llvm --input-shapes x:[2,?]", 4, "'?' in the shape of 'x' is not a size"),
    ("tvmc compile m.onnx --target llvm --dump-code cuda", 4, "there is no 'cuda'"),
    ("tvmc compile m.onnx --target llvm --dump-offloads -", 4, "names no accelerator"),
    ("tvmc compile m.onnx --target llvm --pass-config nosuch=1", 4, "no configuration option 'nosuch'"),
    ("tvmc compile m.onnx --target llvm --pass-config relay.FuseOps.max_depth", 4, "has no value"),
    ("tvmc compile m.onnx --target llvm --pass-config relay.FuseOps.max_depth=few", 4, "takes int, not 'few'"),
    ("tvmc compile m.onnx --target llvm --disabled-pass NoSuchPass", 4, "NoSuchPass"),
    ("tvmc compile m.onnx --target llvm --tuning-records log.json", 4, "log.json has no records"),
    ("tvmc compile m.onnx --target llvm --tuning-records nosuch.json", 4, "nosuch.json: the records cannot be read"),
    ("tvmc compile m.onnx --target llvm --tuning-records list.json", 4, "list.json:1: not a tuning record"),
    ("tvmc compile m.onnx --target llvm --tuning-records ansor.json", 4, "ansor.json:1: not a tuning record"),
    (
        "tvmc compile m.onnx --target llvm --executor graph --executor-graph-link-params 0", 4,
        "--executor-graph-link-params=0 is not possible"
    ),
    ("tvmc compile m.onnx --target llvm --executor-graph-link-params maybe", 4, "'maybe' is neither 1 nor 0"),
    (
        "tvmc compile m.onnx --target llvm --executor-aot-unpacked-api 1", 4,
        "is an option of the executor aot, but the executor is graph"
    ),
    (
        "tvmc compile m.onnx --target llvm --executor aot --executor-aot-unpacked-api 0", 4,
        "--executor-aot-unpacked-api=0 is not possible"
    ),
    (
        "tvmc compile m.onnx --target llvm --executor aot --executor-aot-interface-api packed", 4,
        "--executor-aot-interface-api=packed is not possible"
    ),
    (
        "tvmc compile m.onnx --target llvm --executor aot --executor-aot-interface-api rust", 4,
        "there is no interface 'rust'"
    ),
    (
        "tvmc compile m.onnx --target llvm --executor aot --executor-aot-workspace-byte-alignment 128", 4,
        "memory is aligned to 64 bytes"
    ),
    (
        "tvmc compile m.onnx --target llvm --executor aot --executor-aot-constant-byte-alignment 12", 4,
        "write a power of two"
    ),
    ("tvmc compile m.onnx --target c --executor graph -f mlf", 4, "is not possible for the target c in the Model"),
    ("tvmc compile m.onnx --target llvm --runtime-cpp-system-lib 1", 4, "a library is loaded from its file"),
    ("tvmc compile m.onnx --target llvm -f mlf --runtime-cpp-system-lib 0", 4, "are linked into a program"),
    (
        "tvmc compile m.onnx --target llvm --runtime-crt-system-lib 1", 4,
        "is an option of the runtime crt, but the runtime is cpp"
    ),
    ("tvmc compile m.onnx --target llvm --desired-layout-ops nn.conv2d", 4, "give both options"),
    ("tvmc compile c.onnx --target llvm --desired-layout N-H", 4, "'N-H' is not a layout"),
    ("tvmc compile c.onnx --target llvm --desired-layout NCHW NHWC", 4, "2 layouts for 3 operators"),
    (
        "tvmc compile c.onnx --target llvm --desired-layout NHWC --desired-layout-ops nn.nosuch", 4,
        "there is no operator 'nn.nosuch'"
    ),
    ("tvmc compile m.onnx --target llvm --mixed-precision-ops nn.dense", 4, "selects the operators for"),
    (
        "tvmc compile m.onnx --target llvm --mixed-precision --mixed-precision-ops nn.nosuch", 4,
        "there is no operator 'nn.nosuch'"
    ),
    (
        "tvmc compile m.onnx --target llvm --mixed-precision --mixed-precision-calculation-type float32", 4,
        "is the type without"
    ),
    (
        "tvmc compile m.onnx --target llvm --mixed-precision --mixed-precision-acc-type bfloat16", 4,
        "are summed in float32 or in float16"
    ),
    ("tvmc compile m.onnx --target llvm --workspace-pools a,b", 4, "2 pools are given"),
    ("tvmc compile m.onnx --target llvm --workspace-pools-size-hint-bytes a:100", 4, "there is no pool 'a'"),
    (
        "tvmc compile m.onnx --target llvm --workspace-pools a --workspace-pools-size-hint-bytes 100", 4,
        "write NAME:VALUE"
    ),
    (
        "tvmc compile m.onnx --target llvm --workspace-pools a --workspace-pools-size-hint-bytes a:big", 4,
        "'big' is not a number of bytes"
    ),
    (
        "tvmc compile m.onnx --target llvm --workspace-pools a --workspace-pools-size-hint-bytes a:1", 4,
        "the pool 'a' has 1 bytes"
    ),
    (
        "tvmc compile m.onnx --target llvm --workspace-pools a --workspace-pools-targets a:npu", 4,
        "the workspace is used by llvm"
    ),
    (
        "tvmc compile m.onnx --target llvm --workspace-pools a --workspace-pools-clock-frequency-hz a:100", 4,
        "is for choosing between pools"
    ),
    (
        "tvmc compile m.onnx --target llvm --workspace-pools a --workspace-pools-read-bandwidth-bytes-per-cycle a:8", 4,
        "is for choosing between pools"
    ),
    (
        "tvmc compile m.onnx --target llvm --workspace-pools a --workspace-pools-write-bandwidth-bytes-per-cycle a:8",
        4, "is for choosing between pools"
    ),
    (
        "tvmc compile m.onnx --target llvm --workspace-pools a --workspace-pools-read-latency-cycles a:8", 4,
        "is for choosing between pools"
    ),
    (
        "tvmc compile m.onnx --target llvm --workspace-pools a --workspace-pools-write-latency-cycles a:8", 4,
        "is for choosing between pools"
    ),
    (
        "tvmc compile m.onnx --target llvm --workspace-pools a --workspace-pools-burst-bytes a:llvm:8", 4,
        "is for choosing between pools"
    ),
    ("tvmc compile m.onnx --target llvm --cross-compiler no-such-cc", 4, "there is no compiler 'no-such-cc'"),
    ("tvmc compile m.onnx --target llvm --cross-compiler-options -O2", 4, "name the compiler"),
    ("tvmc compile m.onnx --target llvm --cross-compiler cc --cross-compiler-options \"-DX='\"", 4, "cannot be read"),
    (
        "tvmc compile m.onnx --target llvm --cross-compiler cc --cross-compiler-options -nosuchoption", 4,
        "could not be linked"
    ),
    ("tvmc compile m.onnx --target llvm --cross-compiler cc -f tar", 4, "does not link its objects"),
    ("tvmc compile m.onnx --target 'llvm -mtriple=aarch64-linux-gnu' --cross-compiler cc", 4, "could not be linked"),
    ("tvmc compile m.onnx --target llvm -f tar -o nosuch/p.tar", 4, "cannot write 'nosuch/p.tar'"),
    ("tvmc compile m.onnx --target llvm -f mlf -o nosuch/p.tar", 4, "cannot write 'nosuch/p.tar'"),
    ("tvmc --config nosuch compile m.onnx", 4, "there is no configuration 'nosuch'"),
    ("tvmc --config nosuch.json compile m.onnx", 4, "cannot read 'nosuch.json'"),
    ("tvmc --config text.npz.json compile m.onnx", 4, "is not JSON"),
    ("tvmc --config list.json compile m.onnx", 4, "holds a list"),
    ("tvmc --config unknown.json compile m.onnx", 4, "gives 'targte', which is not an option; did you mean 'target'"),
    ("tvmc --config nokind.json compile m.onnx", 4, "has no 'kind'"),
    ("tvmc --config badtargets.json compile m.onnx", 4, "are a list of objects with a 'kind'"),
    ("tilewright --config nosuch compile m.onnx", 2, "there is no configuration 'nosuch'"),
    ("tilewright compile m.onnx --cross-compiler no-such-cc", 2, "there is no compiler 'no-such-cc'"),
    ("tilewright compile m.onnx --input-shapes z:[1]", 1, "'z'"),
    ("tilewright compile text.npz", 1, "text.npz"),
    ("tilewright compile o.onnx", 0, "Wrote o.tar"),
    ("tilewright compile m.onnx --mixed-precision float64", 2, "neither bfloat16 nor float16"),
    ("tilewright compile m.onnx --numerics abacus", 2, "there is no 'abacus'"),
    ("tilewright compile m.onnx --plugin nosuch.py", 2, "there is no file 'nosuch.py'"),
    ("tilewright check text.npz", 1, "text.npz"),
)

RUNNING: tuple[Case, ...] = (
    ("tvmc run g.tar", 0, "output_0: float32[2, 10]"),
    ("tvmc run a.tar", 0, "output_0: float32[2, 10]"),
    ("tvmc run l.tar", 0, "output_0: float32[2, 10]"),
    ("tvmc run v.tar", 0, "output_0: float32[2, 10]"),
    ("tvmc run g.tar --device cpu --inputs in.npz --outputs out.npz", 0, ""),
    ("tvmc run g.tar -i in.npz -o out.npz --print-top 3", 0, "its 3 largest"),
    ("tvmc run g.tar --fill-mode zeros --print-top 1", 0, "its 1 largest"),
    ("tvmc run g.tar --fill-mode ones --print-time", 0, "mean (ms)"),
    ("tvmc run g.tar --print-time --repeat 3 --number 2 --end-to-end", 0, "mean (ms)"),
    ("tvmc run g.tar --profile", 0, "kernel_0_dense_add_relu"),
    ("tvmc run -v g.tar", 0, "output_0"),
    ("tvmc run w.tar", 4, "has the dynamic shape"),
    ("tvmc run w.tar -i in.npz --print-time", 0, "mean (ms)"),
    ("tvmc run w.tar -i in.npz --profile", 4, "time it as a whole"),
    ("tvmc run v.tar --profile", 0, "kernel_0_dense_add_relu"),
    ("tilewright profile m.onnx --repeat 2", 0, "Roofline (%)"),
    ("tilewright profile s.so --repeat 2 --no-peaks --format csv", 0, "Name,Duration (us),Percent"),
    ("tilewright profile s.so --repeat 2 --no-peaks --format json --memory", 0, "peak_step"),
    ("tilewright profile s.so --repeat 2 --no-peaks --aggregate --memory", 0, "peak of the arena"),
    (
        "tilewright profile s.so --repeat 2 --no-peaks --trace run.pftrace -o report.csv --format csv", 0,
        "Wrote report.csv"
    ),
    ("tilewright profile o.onnx", 2, "--input-shapes"),
    ("tilewright run m.onnx --profile --repeat 1", 0, "(between steps)"),
    ("tilewright compile m.onnx --max-arena 1M -o fits.tar", 0, "Wrote fits.tar"),
    ("tilewright compile m.onnx --max-arena 64 -o large.tar", 1, "but the limit is 64: the peak is at"),
    ("tvmc run nosuch.tar", 4, "does not exist"),
    ("tvmc run m.onnx", 4, "is not a package of tvmc"),
    ("tvmc run b.tar", 4, "damaged"),
    ("tvmc run wrong.tar", 4, "the graph is of another program"),
    ("tvmc run empty.tar", 4, "it has none of mod.so"),
    ("tvmc run f.tar", 4, "made for aarch64"),
    ("tvmc run g.tar -i other.npz", 4, "has no input 'other'"),
    ("tvmc run g.tar -i short.npz", 4, "x"),
    ("tvmc run g.tar -i text.npz", 4, "cannot read arrays"),
    ("tvmc run g.tar -o out.txt", 4, "does not end in .npz"),
    ("tvmc run g.tar --end-to-end", 4, "changes the times of --print-time"),
    ("tvmc run g.tar --device cuda", 4, "GPUs are not supported"),
    ("tvmc run g.tar --device cl", 4, "GPUs are not supported"),
    ("tvmc run g.tar --device metal", 4, "GPUs are not supported"),
    ("tvmc run g.tar --device vulkan", 4, "GPUs are not supported"),
    ("tvmc run g.tar --device rocm", 4, "GPUs are not supported"),
    ("tvmc run g.tar --device micro", 4, "'g.tar' is not a project: it has no project.json"),
    ("tvmc run . --device cpu", 4, "a project of a board is run with --device micro"),
    ("tvmc run k.tar", 4, "is a model in C, which a project compiles"),
    ("tvmc compile m.onnx --target c -f mlf --module-name net -o n.tar", 0, "Wrote n.tar"),
    (
        "tvmc compile m.onnx --target c -f mlf --workspace-pools ram", 4,
        "the workspace of a model in C is an array in its text"
    ),
    ("tvmc micro", 2, "Missing command"),
    ("tvmc micro -h", 0, "create-project"),
    ("tvmc micro create-project", 2, "Missing argument"),
    ("tvmc micro create-project made k.tar host", 0, "Created made of 'net' for host"),
    (
        "tvmc micro create-project made k.tar qemu-arm --project-option board=mps2-an500 optimization=s", 0,
        "Created made"
    ),
    ("tvmc micro create-project made k.tar qemu-arm --list-options", 0, "board=mps2-an385"),
    ("tvmc micro create-project made k.tar zephyr", 4, "there is no template 'zephyr'; choose from host, qemu-arm"),
    ("tvmc micro create-project made k.tar template", 4, "is for your own template"),
    ("tvmc micro create-project made k.tar host --template-dir .", 4, "together with the word template"),
    ("tvmc micro create-project made k.tar template --template-dir .", 4, "is not a project template"),
    ("tvmc micro create-project made l.tar host", 4, "the model is not C text but code for llvm"),
    ("tvmc micro create-project made g.tar host", 4, "not a Model Library"),
    ("tvmc micro create-project made nosuch.tar host", 4, "the Model Library 'nosuch.tar' does not exist"),
    ("tvmc micro create-project . k.tar host", 4, "already exists; choose another folder"),
    ("tvmc micro create-project made k.tar qemu-arm --project-option bord=x", 4, "did you mean 'board'?"),
    ("tvmc micro create-project made k.tar qemu-arm --project-option board=uno", 4, "'uno' is not one of mps2-an385"),
    ("tvmc micro create-project made k.tar qemu-arm --project-option board", 4, "'board' has no value"),
    ("tvmc micro build nosuch", 4, "is not a project"),
    ("tvmc micro flash nosuch", 4, "is not a project"),
    ("tilewright micro test nosuch", 1, "is not a project"),
    ("tilewright micro create-project made k.tar hots", 2, "did you mean 'host'?"),
    ("tvmc run g.tar --device abacus", 4, "there is no device 'abacus'"),
    ("tvmc run g.tar --rpc-tracker localhost:9090", 4, "give both"),
    ("tvmc run g.tar --rpc-key pi", 4, "give both"),
    ("tvmc run g.tar --project-option a=b", 4, "--project-option is for --device micro"),
    ("tvmc run g.tar --list-options", 4, "--list-options is for --device micro"),
    ("tilewright run s.so", 0, "float32[2, 10]"),
    ("tilewright run m.onnx -i in.npz -o out.npz", 0, ""),
    ("tilewright run m.onnx --print-time --repeat 1 --number 1", 0, "mean (ms)"),
    ("tilewright run g.tar", 1, "g.tar"),
    ("tilewright run s.so -i other.npz", 1, "has no input 'other'"),
)

TUNING: tuple[Case, ...] = (
    ("tvmc tune -h", 0, "--enable-autoscheduler"),
    ("tvmc tune m.onnx -o r.json", 2, "--target"),
    ("tvmc tune m.onnx --target llvm", 2, "--output"),
    ("tvmc tune m.onnx --target llvm -o r.json --trials 0", 2, "--trials"),
    ("tvmc tune m.onnx --target llvm -o r.json --tasks list", 0, "  0  "),
    ("tvmc tune m.onnx --target llvm -o r.json --tasks list --enable-autoscheduler", 0, "fused_nn.dense"),
    ("tvmc tune nosuch.onnx --target llvm -o r.json", 4, "does not exist"),
    ("tvmc tune o.onnx --target llvm -o r.json", 4, "shape"),
    ("tvmc tune m.onnx --target llvm -o r.json --tasks few", 4, "cannot read 'few'"),
    ("tvmc tune m.onnx --target llvm -o r.json --tasks 0,99", 4, "'99' is not within"),
    ("tvmc tune m.onnx --target llvm -o r.json --tuner xgb_rnk", 4, "did you mean 'xgb_rank'?"),
    ("tvmc tune m.onnx --target 'npu, llvm' -o r.json", 4, "give only the processor"),
    ("tvmc tune m.onnx --target target.json -o r.json", 4, "does not run on this machine"),
    ("tvmc tune m.onnx --target llvm -o nosuch/r.json", 4, "in an existing folder"),
    ("tvmc tune m.onnx --target llvm -o r.json --tuning-records log.json", 4, "has no records"),
    ("tvmc tune m.onnx --target llvm -o r.json --tuning-records searched.json", 4, "add --enable-autoscheduler"),
    ("tvmc tune m.onnx --target llvm -o r.json --tuning-records ansor.json", 4, "ansor.json:1: not a tuning record"),
    (
        "tvmc tune m.onnx --target llvm -o r.json --tuning-records autotvm.json --enable-autoscheduler", 4,
        "omit --enable-autoscheduler"
    ),
    ("tilewright tune m.onnx --tuner xgb_rnk", 2, "did you mean 'xgb_rank'?"),
    ("tilewright tune o.onnx", 2, "give them with --input-shapes"),
    ("tilewright tune m.onnx --minutes 0", 2, "--minutes"),
    ("tilewright tune m.onnx --target 'npu, llvm'", 1, "give only the processor"),
    ("tilewright tune m.onnx --target target.json", 1, "does not run on this machine"),
    ("tilewright compile m.onnx --tuning-records nosuch.json", 2, "nosuch.json"),
    ("tilewright compile m.onnx --tuning-records log.json", 2, "log.json has no records"),
    ("tilewright run m.onnx --tuning-records list.json", 1, "not a tuning record"),
)

CASES = (*USE, *TARGETS, *COMPILING, *REFUSED, *RUNNING, *TUNING)
