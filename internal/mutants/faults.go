package main

// fault is a mistake to plant in the kernels: a text that occurs once in a file, and its replacement. FAULT is true in
// it while the tests run against this fault: all faults are compiled together.
type fault struct {
	kind      string
	file      string // below fused/kernels
	old, with string
	test      string // the tests that must fail: "loops", "runtime", or classes of ort_test.py
}

// faults are typical mistakes. Faults of kind "sync" remove the memory or the order that separates a task from others.
var faults = []fault{
	{"epsilon", "cpu/simd/norm.h", "__builtin_sqrtf(mean + epsilon)", "__builtin_sqrtf(mean + (FAULT ? 0 : epsilon))",
		"loops"},
	{"epsilon", "cpu/simd/router.h", "static_cast<float>(sum) + args.epsilon",
		"static_cast<float>(sum) + (FAULT ? 0 : args.epsilon)", "loops"},
	{"epsilon", "cpu/rms_norm.cc", "= attributes.epsilon", "= attributes.epsilon * (FAULT ? 0.5f : 1)",
		"RMSNormTest EveryOpTest"},
	{"epsilon", "cpu/norm_rotary.cc", "attributes.epsilon, {}", "attributes.epsilon * (FAULT ? 0.5f : 1), {}",
		"NormRotaryTest EveryOpTest"},
	{"epsilon", "cpu/gated_rms_norm.cc", "= attributes.epsilon", "= (FAULT ? 0 : attributes.epsilon)",
		"EveryOpTest"},
	{"epsilon", "cpu/topk_router.cc", "args.epsilon = a.epsilon", "args.epsilon = FAULT ? 0 : a.epsilon",
		"TopKRouterTest EveryOpTest"},

	{"tail", "cpu/simd/norm.h", "  if (i < n) b = add(value(Part{n - i}, i), b);",
		"  if (i < n && !FAULT) b = add(value(Part{n - i}, i), b);", "loops"},
	{"tail", "cpu/simd/vec.h", "if (i < n) body(Part{n - i}, i);", "if (i < n && !FAULT) body(Part{n - i}, i);",
		"loops"},
	{"tail", "cpu/simd/router.h", "k = (I32)Select(InLast(n)", "if (!FAULT) k = (I32)Select(InLast(n)", "loops"},
	{"tail", "cpu/simd/rotary.h", "width - first - rotated);", "FAULT ? 0 : width - first - rotated);", "loops"},
	{"tail", "cpu/simd/norm_rotary.h", "width - end, y + end);", "FAULT ? 0 : width - end, y + end);", "loops"},
	{"tail", "cpu/simd/attention_few.h", "if (c < t.value_width) ValueTile",
		"if (c < t.value_width && !FAULT) ValueTile", "loops"},
	{"tail", "cpu/linear.cc", "std::min(end * kTileRows, q.rows)", "std::min(end * kTileRows, q.rows - FAULT)",
		"LinearTest EveryOpTest"},
	{"tail", "cpu/moe_tasks.cc", "if (run.rest > 0) ActivateRows", "if (run.rest > FAULT) ActivateRows",
		"MoETest EveryOpTest"},
	{"tail", "cpu/latent_attention_run.cc", "std::min(kRows, go.length - first)",
		"std::min(kRows, go.length - FAULT - first)", "LatentAttentionTest EveryOpTest"},

	{"stride", "cpu/simd/norm.h", "row % args.groups * width", "row % args.groups * (FAULT ? 1 : width)", "loops"},
	{"stride", "cpu/simd/rotary.h", "row * args.sin_step", "row * (FAULT ? args.cos_step : args.sin_step)", "loops"},
	{"stride", "cpu/simd/router.h", "GroupScore(choice + g * size,", "GroupScore(choice + g * (FAULT ? 1 : size),",
		"loops"},
	{"stride", "cpu/attention_tasks.cc", "(i - p.past) * added_step * size",
		"(i - p.past) * (FAULT ? width : added_step) * size", "AttentionTest EveryOpTest"},
	{"stride", "cpu/attention_tasks.cc", "query * t.bias_steps[2]", "query * t.bias_steps[FAULT ? 1 : 2]",
		"AttentionTest EveryOpTest"},
	{"stride", "cpu/moe_tasks.cc", "down.expert * a.hidden + down.first",
		"down.expert * (FAULT ? a.inner : a.hidden) + down.first", "MoETest EveryOpTest"},
	{"stride", "cpu/qmoe_tasks.cc", "Forward(a.gate_up_bias, run.expert * a.gate_up.n)",
		"Forward(a.gate_up_bias, run.expert * (FAULT ? a.inner : a.gate_up.n))", "EveryOpTest"},
	{"stride", "cpu/embedding.cc", "work.y + i * w.k", "work.y + i * (FAULT ? w.k / 2 : w.k)", "EveryOpTest"},
	{"stride", "cpu/latent_attention_run.cc", "token * rotated, rotated", "token * (FAULT ? latent : rotated), rotated",
		"LatentAttentionTest EveryOpTest"},

	{"sync", "cpu/attention_tasks.cc", "go.workers + worker * go.worker_bytes",
		"go.workers + (FAULT ? 0 : worker) * go.worker_bytes", "runtime"},
	{"sync", "cpu/attention_run.cc", "if (go->slices == 1) return nullptr;",
		"if (go->slices == 1 || FAULT) return nullptr;", "AttentionTest"},
	{"sync", "cpu/simd/attention_softmax.h", "Load(part, t.sum + row) * factor + sums",
		"Load(part, t.sum + row) * (FAULT ? Set(1) : factor) + sums", "loops"},
	{"sync", "cpu/simd/rotary.h", "if (kFrom != kTo && in_place) {", "if (kFrom != kTo && in_place && !FAULT) {",
		"loops"},
	{"sync", "cpu/simd/norm_rotary.h", "if (kFrom != kTo && in_place) {", "if (kFrom != kTo && in_place && !FAULT) {",
		"loops"},

	{"gate", "cpu/simd/gate.h", "Store(lanes, y + i, Round(y, activation(g)) * u);",
		"Store(lanes, y + i, FAULT ? Round(y, activation(u)) * g : Round(y, activation(g)) * u);", "loops"},
	{"gate", "cpu/gated_rms_norm.cc", "= attributes.gate_first ?", "= attributes.gate_first != FAULT ?",
		"EveryOpTest"},
	{"gate", "cpu/moe_tasks.cc", "gate[i] = y[2 * i], up[i] = y[2 * i + 1]",
		"gate[i] = y[2 * i + FAULT], up[i] = y[2 * i + !FAULT]", "MoETest EveryOpTest"},
	{"gate", "cpu/moe_tasks.cc", "      up.first += a.inner;", "      (FAULT ? gate : up).first += a.inner;",
		"MoETest EveryOpTest"},
	{"gate", "cpu/qmoe_tasks.cc", "go.gate({g, u, activated,", "go.gate({FAULT ? u : g, FAULT ? g : u, activated,",
		"EveryOpTest"},

	{"other", "cpu/simd/router.h", "const I32 more = v > best;", "const I32 more = FAULT ? v >= best : v > best;",
		"loops"},
	{"other", "cpu/simd/rotary.h", "Round(r.y, a * cos_a) - Round(r.y, b * sin_a)",
		"Round(r.y, a * cos_a) - Round(r.y, (FAULT ? -b : b) * sin_a)", "loops"},
	{"other", "cpu/simd/norm_rotary.h", "if (kAfter) n = Round(y, n);", "if (kAfter && !FAULT) n = Round(y, n);",
		"loops"},
	{"other", "cpu/attention_tasks.cc", "std::min(p.length, at - before + 1)",
		"std::min(p.length, at - before + !FAULT)", "AttentionTest EveryOpTest"},
	{"other", "cpu/attention_tasks.cc", "t.sink != nullptr && slice == 0", "t.sink != nullptr && (slice == 0 || FAULT)",
		"AttentionTest EveryOpTest"},
}
