"""Tests the module mojo_patch as it is installed, with the Python that it is installed for.

Run by test_wheel.py in a fresh environment that has onnx, onnxruntime and numpy, as
    python python/tests/test_module.py
"""

import json
import logging
import os
import pathlib
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import typing
import unittest

import big_model
import mojo_patch
import numpy as np
import onnx.checker
import onnx.numpy_helper
import onnxruntime
from mojo_patch import _reports

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = ROOT / "models"
MODEL = MODELS / "qwen3-dynamo-fp32.onnx"
CACHED = MODELS / "llama-kv-dynamo-fp32.onnx"
GOLDEN = MODEL.with_suffix(".npz")
# The onnxruntime of old Pythons is too old for the program, which then looks for another one.
CAN_RUN = any(t.status == "runs" for trials in mojo_patch.scan_all_kernels().values() for t in trials)


def weights(model):
    return {t.name: (list(t.dims), onnx.numpy_helper.to_array(t).tobytes()) for t in model.graph.initializer}


class Test(unittest.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory(prefix="mojo patch – 模型 ")
        self.addCleanup(temp.cleanup)
        self.temp = pathlib.Path(temp.name)
        self.patched = self.temp / "patched.onnx"

    def command(self, *arguments):
        return subprocess.run([mojo_patch.find_program(), *map(str, arguments)], capture_output=True,
                              encoding="utf-8", check=False)

    def left(self):
        return sorted(p.name for p in self.temp.iterdir())


class Installed(Test):
    def test_files(self):
        for path in (mojo_patch.find_program(), mojo_patch.get_library_path()):
            self.assertTrue(path.startswith(sys.prefix), path)
        self.assertNotEqual(mojo_patch.__version__, "0")

    def test_program_finds_the_library(self):
        # By itself, from a folder that holds nothing, without a variable that names it.
        environment = {k: v for k, v in os.environ.items() if k not in ("MOJO_OPS_LIBRARY", "VIRTUAL_ENV")}
        done = subprocess.run([mojo_patch.find_program(), "apply", str(MODEL), "-o", "out.onnx", "--require"],
                              cwd=str(self.temp), env=environment, capture_output=True, encoding="utf-8", check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_libraries_of_the_working_directory(self):
        # `python -c` puts that folder first in sys.path: libraries in it are not loaded.
        name = os.path.basename(mojo_patch.get_library_path())
        cuda = name.replace("mojo_ops", "mojo_ops_cuda")
        for package, library in ("mojo_patch_cuda", cuda), ("onnxruntime/capi", name):
            folder = self.temp / package
            folder.mkdir(parents=True)
            (folder / library).write_bytes(b"")
            (self.temp / package.split("/")[0] / "__init__.py").write_text("")
        (self.temp / "onnxruntime/capi/build_and_package_info.py").write_text("__version__ = '1.99.0'")
        code = "from mojo_patch import _command as c, _libraries as l; print(l.find_library('cuda'), c._onnxruntime())"
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"}
        for path in ("", os.curdir, str(self.temp)):
            done = subprocess.run([sys.executable, "-c", code], cwd=str(self.temp), check=True, stdout=subprocess.PIPE,
                                  env={**environment, "PYTHONPATH": path}, encoding="utf-8")
            self.assertNotIn(str(self.temp), done.stdout)
            self.assertTrue(done.stdout.startswith("None "), done.stdout)

    def test_python_m(self):
        done = subprocess.run([sys.executable, "-m", "mojo_patch", "apply"], stderr=subprocess.PIPE, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"apply takes one model, but got 0", done.stderr)

    def test_names(self):
        for name in mojo_patch.__all__:
            self.assertIsNotNone(getattr(mojo_patch, name))
        with self.assertRaisesRegex(AttributeError, "no attribute 'nothing'"):
            _ = mojo_patch.nothing
        done = subprocess.run([sys.executable, "-c", "import sys, mojo_patch; print(*sys.modules)"], check=True,
                              stdout=subprocess.PIPE, encoding="utf-8")
        self.assertEqual([m for m in done.stdout.split() if m in ("subprocess", "dataclasses", "onnx", "numpy")], [])

    def test_cuda(self):
        with self.assertRaisesRegex(mojo_patch.NotInstalled, "make cuda"):
            mojo_patch.get_library_path("cuda")
        with self.assertRaisesRegex(ValueError, "no kernels for 'tpu'"):
            mojo_patch.get_library_path("tpu")


class Apply(Test):
    def test_report(self):
        with self.assertLogs("mojo_patch", logging.INFO) as logs:
            report = mojo_patch.apply(MODEL, self.patched, verify="distinct")
        self.assertTrue(report.changed)
        self.assertEqual((report.fused, report.refused), (13, 0))
        self.assertEqual(report.input.nodes, 215)
        self.assertEqual(report.output.nodes, 51)
        self.assertEqual(report.output.path, str(self.patched))
        norm = next(s for s in report.sites if s.pattern == "RMSNorm")
        self.assertEqual((norm.status, norm.op, norm.types), ("fused", "RMSNorm", ["float32", "float32"]))
        self.assertIsInstance(norm.check.max_rel, float)
        self.assertLess(norm.check.max_rel, 1e-6)
        self.assertEqual({p.name: p.fused for p in report.patterns}["SwiGLU"], 2)
        self.assertTrue(any("wrote" in line for line in logs.output), logs.output)
        self.assertFalse([r for r in logs.records if r.levelno > logging.INFO])

    def test_forms(self):
        report = mojo_patch.apply(MODEL, self.patched, html=self.temp / "report.html")
        self.assertEqual(repr(report), "<Report qwen3-dynamo-fp32.onnx: 215 \N{RIGHTWARDS ARROW} 51 nodes, 13 fused, "
                                       "0 refused>")
        self.assertIn("AddRMSNorm         4 of 4\n", str(report))
        self.assertIn(">NormRotary</td><td style=\"text-align: left\">4</td>", report._repr_html_())
        self.assertIn("<html", (self.temp / "report.html").read_text(encoding="utf-8"))
        again = pickle.loads(pickle.dumps(report))
        self.assertEqual((again, str(again)), (report, str(report)))
        made = report.to_dict()
        self.assertEqual((made["sites"][0]["status"], made["output"]["nodes"]), ("fused", 51))
        self.assertEqual(json.loads(json.dumps(made)), made)
        for other in (mojo_patch.match(MODEL), mojo_patch.inspect(MODEL)):
            self.assertLess(len(repr(other)), 120)
            self.assertGreater(len(str(other).splitlines()), 3)

    def test_what_stays_is_a_warning(self):
        with self.assertLogs("mojo_patch", logging.WARNING) as logs:
            report = mojo_patch.apply(MODELS / "moe-gelu-ts-fp32.onnx", self.patched, target="onnx")
        self.assertTrue(report.left)
        self.assertTrue(all(any(s.reason in line for line in logs.output) for s in report.left), logs.output)
        self.assertIn(report.left[0].reason, report._repr_html_())
        with self.assertLogs("mojo_patch", logging.WARNING) as logs:
            report = mojo_patch.match(MODELS / "moe-gelu-ts-fp32.onnx", target="onnx")
        self.assertTrue(all(any(s.reason in line for line in logs.output) for s in report.left), logs.output)

    def test_flags_for_a_server(self):
        with self.assertLogs("mojo_patch", logging.WARNING) as logs:
            report = mojo_patch.apply(MODEL, self.patched, for_="genai")
        self.assertEqual((report.preset.flags, report.logits), (["--last-logits"], "last position only"))
        self.assertEqual(report.preset.left_out[0].flags, ["--cache static", "--past-length=rows"])
        self.assertIn("left out --cache static --past-length=rows: ", logs.output[0])

    def test_names_and_help(self):
        self.assertIn("apply", dir(mojo_patch))
        for function in (mojo_patch.apply, mojo_patch.match, mojo_patch.apply_model, mojo_patch.apply_folder):
            missing = [name for name in mojo_patch.ApplyOptions.__annotations__ if name not in function.__doc__]
            self.assertEqual(missing, [])
        self.assertEqual([n for n in mojo_patch.DiffOptions.__annotations__ if n not in mojo_patch.diff.__doc__], [])

    def test_same_bytes_as_the_command(self):
        mojo_patch.apply(str(MODEL), str(self.patched))
        other = self.temp / "command.onnx"
        self.assertEqual(self.command("apply", MODEL, "-o", other).returncode, 0)
        self.assertEqual(self.patched.read_bytes(), other.read_bytes())

    def test_output_beside(self):
        copy = self.temp / "mod el.onnx"
        shutil.copyfile(str(MODEL), str(copy))
        report = mojo_patch.apply(copy, verify="off")
        self.assertEqual(report.output.path, str(self.temp / "mod el.mojo.onnx"))

    def test_options(self):
        for options, want in [
            ({"kernels": "cpu_fused_rmsnorm"}, {"AddRMSNorm", "RMSNorm"}),
            ({"kernels": ["cpu_fused_swiglu", "cpu_fused_rope"]}, {"SwiGLU", "RotaryEmbedding"}),
            ({"only": ["SwiGLU"]}, {"SwiGLU"}),
            ({"skip": ("SwiGLU", "Attention")}, {"AddRMSNorm", "RMSNorm", "NormRotary", "KeyTranspose"}),
            ({"site": ["RMSNorm:mul_4"], "check_kernels": None}, {"RMSNorm"}),
        ]:
            report = mojo_patch.match(MODEL, verify="off", **options)
            self.assertEqual({s.pattern for s in report.sites if s.status == "fused"}, want, options)
            self.assertTrue(report.dry_run)
        report = mojo_patch.apply_kernel("cpu_fused_rmsnorm", MODEL, self.patched)
        self.assertEqual({s.op for s in report.sites if s.status == "fused"}, {"AddRMSNorm", "RMSNorm"})
        report = mojo_patch.apply(MODEL, self.patched, target="qnn", shape={"batch": 1, "sequence": 16}, verify="off")
        self.assertEqual(report.target, "qnn")
        report = mojo_patch.apply(MODEL, self.patched, target="ort", last_logits=True, allow_links=False)
        self.assertEqual((report.target, report.logits), ("ort", "last position only"))
        report = mojo_patch.apply(CACHED, self.patched, cache="static=64")
        self.assertEqual((report.cache.length, report.cache.length_from), (64, "attention_mask"))

    def test_golden(self):
        self.assertTrue(mojo_patch.apply(MODEL, self.patched, golden=GOLDEN, evaluator=not CAN_RUN).changed)

    def test_kernels(self):
        kernels = mojo_patch.scan_all_kernels()
        self.assertIn("cpu_fused_rmsnorm", kernels)
        self.assertEqual({t.device for t in kernels["cpu_fused_moe"]}, {"cpu"})
        self.assertIs(kernels, mojo_patch.scan_all_kernels())
        if CAN_RUN:
            self.assertEqual({t.status for t in kernels["cpu_fused_rmsnorm"]}, {"runs"})

    def test_threads(self):
        reports = []
        threads = [threading.Thread(target=lambda i=i: reports.append(
            mojo_patch.apply(MODEL, self.temp / f"{i}.onnx", verify="off"))) for i in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual([r.fused for r in reports], [13] * 3)

    def test_folder(self):
        exported, out = self.temp / "exported", self.temp / "out"
        (exported / "onnx").mkdir(parents=True)
        (exported / "config.json").write_text("{}")
        onnx.save_model(onnx.load(str(MODEL)), str(exported / "onnx" / "model.onnx"), save_as_external_data=True,
                        location="model.onnx_data", size_threshold=64)
        reports = mojo_patch.apply_folder(exported, out, verify="off")
        self.assertEqual({name: r.fused for name, r in reports.items()}, {os.path.join("onnx", "model.onnx"): 13})
        self.assertEqual((out / "config.json").read_text(), "{}")
        self.assertEqual(sorted(os.listdir(str(out / "onnx"))), ["model.onnx", "model.onnx.data"])
        onnx.checker.check_model(str(out / "onnx" / "model.onnx"))
        with self.assertRaisesRegex(FileNotFoundError, "contains no .onnx file"):
            mojo_patch.apply_folder(out / "none", self.temp / "other")


    def test_export(self):
        options = {"cache": "static=32", "past_length": "rows", "last_logits": True, "verify": "off"}
        mojo_patch.apply(CACHED, self.patched, assume_available=True, **options)
        folder = mojo_patch.export_genai(self.patched, self.temp / "folder", MODELS / "smollm2")
        self.assertEqual((folder.batch, folder.cache, folder.context_length), ("any", "shared", 32))
        self.assertEqual(sorted(os.listdir(folder.folder)), sorted(folder.files))
        model = mojo_patch.export_triton(self.patched, self.temp / "repository", name="decoder", max_batch_size=2)
        self.assertEqual([s.output for s in model.states[-1:]], ["present_length"])
        self.assertTrue((self.temp / "repository" / "decoder" / "config.pbtxt").exists())
        with self.assertRaisesRegex(mojo_patch.MojoPatchError, "exists already"):
            mojo_patch.export_genai(self.patched, self.temp / "folder", MODELS / "smollm2")


class InMemory(Test):
    def same_as_file(self, model, name, **options):
        """Patches a model in memory, which must change neither it nor the result that files give."""
        before = model.SerializeToString()
        patched, report = mojo_patch.apply_model(model, verify="off", **options)
        self.assertEqual(model.SerializeToString(), before, "the model that was given has changed")
        mojo_patch.apply(MODELS / name, self.patched, verify="off")
        want = onnx.load(str(self.patched))
        self.assertEqual(patched.graph.node, want.graph.node)
        self.assertEqual(patched.functions, want.functions)
        self.assertEqual(weights(patched), weights(want))
        self.assertTrue(report.changed)
        return patched

    def test_model(self):
        patched = self.same_as_file(onnx.load(str(MODEL)), MODEL.name)
        self.assertFalse(any(t.data_location == t.EXTERNAL for t in patched.graph.initializer))
        onnx.checker.check_model(patched)

    def test_stacked_weights(self):
        name = "moe-gelu-ts-fp32.onnx"
        patched = self.same_as_file(onnx.load(str(MODELS / name)), name)
        self.assertIn("MoE", {n.op_type for n in patched.graph.node})

    def test_external_data(self):
        elsewhere = self.temp / "given"
        elsewhere.mkdir()
        onnx.save_model(onnx.load(str(MODEL)), str(elsewhere / "m.onnx"), save_as_external_data=True, location="w.bin",
                        size_threshold=64)
        model = onnx.load(str(elsewhere / "m.onnx"), load_external_data=False)
        with self.assertRaisesRegex(ValueError, "weights of the model lie in w.bin"):
            mojo_patch.apply_model(model)
        patched, _ = mojo_patch.apply_model(model, data_folder=elsewhere)
        self.assertTrue(any(t.data_location == t.EXTERNAL for t in patched.graph.initializer))
        (elsewhere / "p.onnx").write_bytes(patched.SerializeToString())
        mojo_patch.apply(MODEL, self.patched)
        self.assertEqual(weights(onnx.load(str(elsewhere / "p.onnx"))), weights(onnx.load(str(self.patched))))

    def test_other_kinds(self):
        import onnx_ir

        patched, report = mojo_patch.apply_model(onnx_ir.load(str(MODEL)), verify="off")
        self.assertIsInstance(patched, onnx_ir.Model)
        self.assertEqual((report.fused, report.input.path), (13, "<Model>"))
        content, report = mojo_patch.apply_model(MODEL.read_bytes(), verify="off")
        self.assertEqual(report.input.path, "<bytes>")
        self.assertEqual(len(onnx.load_model_from_string(content).graph.node), 51)
        for model in (MODEL.read_bytes(), onnx_ir.load(str(MODEL)), onnx.load(str(MODEL))):
            report = mojo_patch.apply(model, self.patched, verify="off")
            self.assertEqual((report.fused, report.input.path), (13, f"<{type(model).__name__}>"))
            self.assertEqual(self.left(), ["patched.onnx"])
            self.assertEqual(mojo_patch.inspect(model).nodes, 215)
        if CAN_RUN:
            self.assertTrue(mojo_patch.diff(onnx_ir.load(str(MODEL)), patched).passed)

    def test_external_data_stay_inside(self):
        # A model's file names do not decide which files are written or linked.
        folder, secret = self.temp / "given", self.temp / "secret"
        folder.mkdir()
        secret.write_bytes(b"s" * 4096)
        (folder / "w.bin").write_bytes(b"w" * 4096)
        (folder / "link.bin").symlink_to(secret)
        (folder / "out").symlink_to(self.temp)
        (folder / "sub").mkdir()
        (folder / "sub" / "w.bin").write_bytes(b"v" * 4096)
        os.mkfifo(str(folder / "pipe"))

        def model(location, where="initializer"):
            m = onnx.helper.make_model(onnx.helper.make_graph(
                [onnx.helper.make_node("Add", ["x", "w"], ["y"])], "g",
                [onnx.helper.make_tensor_value_info("x", 1, [64])], [onnx.helper.make_tensor_value_info("y", 1, [64])]))
            constant = onnx.helper.make_node("Constant", [], ["c"], value=onnx.TensorProto(data_type=1, dims=[64]))
            m.graph.initializer.add(name="w", data_type=1, dims=[64], raw_data=bytes(256))
            tensor = m.graph.initializer[0]
            if where == "attribute":
                m.graph.node.insert(0, constant)
                tensor = m.graph.node[0].attribute[0].t
            elif where == "function":
                f = onnx.helper.make_function("f", "F", [], ["c"], [constant], [onnx.helper.make_opsetid("", 20)])
                m.functions.append(f)
                tensor = m.functions[0].node[0].attribute[0].t
            tensor.ClearField("raw_data")
            tensor.data_location = tensor.EXTERNAL
            for key, value in ("location", location), ("offset", "0"), ("length", "256"):
                if value is not None:
                    tensor.external_data.add(key=key, value=value)
            return m

        refused = ["../secret", "sub/../../secret", str(secret), "/", ".", "..", "", None, "w.bin\0", "link.bin",
                   "out/secret", "pipe", "sub", "none", "../" * 9 + "etc/hostname", "../given/w.bin"]
        for where in ("initializer", "attribute", "function"):
            for location in refused:
                with self.assertRaises(mojo_patch.MojoPatchError, msg=(where, location)):
                    mojo_patch.apply_model(model(location, where), data_folder=folder, verify="off")
            for location in ("w.bin", "sub/w.bin", "./sub/../w.bin"):
                patched, _ = mojo_patch.apply_model(model(location, where), data_folder=folder, verify="off")
                self.assertIn("EXTERNAL", str(patched), (where, location))
        patched, _ = mojo_patch.apply_model(model("link.bin"), data_folder=folder, verify="off", allow_links=True)
        self.assertIn("link.bin", str(patched))

        # Names of past or present files beside it in the temporary folder.
        for name in ("model.onnx", "model.onnx.mojo-patch", "patched.onnx", "patched.onnx.data", ".patched.onnx.lock",
                     "mojo-patch-model.onnx", "MOJO-PATCH-MODEL.weights", "mojo-patch-model-patched.onnx.data",
                     ".mojo-patch-model-patched.onnx.lock", "mojo-patch-model.onnx/w.bin", "mojo-patch-model-.onnx"):
            (folder / name).parent.mkdir(exist_ok=True)
            if (folder / name).is_dir():
                continue
            (folder / name).write_bytes(b"n" * 4096)
            patched, _ = mojo_patch.apply_model(model(name), data_folder=folder, verify="off")
            self.assertEqual({e.key: e.value for e in patched.graph.initializer[0].external_data}["location"], name)
            self.assertEqual((folder / name).read_bytes(), b"n" * 4096)
            if (folder / name).parent == folder:
                (folder / name).unlink()
            else:
                shutil.rmtree(str((folder / name).parent))
        self.assertEqual(secret.read_bytes(), b"s" * 4096)

    def test_folder_of_links(self):
        folder = self.temp / "given"
        folder.mkdir()
        shutil.copyfile(str(MODEL), str(folder / "m.onnx"))
        (self.temp / "secret").write_text("secret")
        (folder / "config.json").symlink_to(self.temp / "secret")
        with self.assertRaisesRegex(mojo_patch.MojoPatchError, "config.json is a symbolic link"):
            mojo_patch.apply_folder(folder, self.temp / "out", verify="off")
        mojo_patch.apply_folder(folder, self.temp / "out", verify="off", allow_links=True)
        self.assertEqual((self.temp / "out" / "config.json").read_text(), "secret")

    def test_proto_to_file(self):
        report = mojo_patch.apply(onnx.load(str(MODEL)), self.patched, verify="off")
        self.assertEqual(report.fused, 13)
        self.assertEqual(mojo_patch.inspect(onnx.load(str(self.patched))).fused["NormRotary"], 4)
        self.assertTrue(mojo_patch.match(onnx.load(str(MODEL)), verify="off").dry_run)
        with self.assertRaisesRegex(TypeError, "needs an output"):
            mojo_patch.apply(onnx.load(str(MODEL)))
        with self.assertRaisesRegex(TypeError, "a model is a path"):
            mojo_patch.apply(3, self.patched)


class Session(Test):
    def outputs(self, session):
        golden = np.load(str(GOLDEN))
        inputs = {x.name: golden[f"0.in.{x.name}"] for x in session.get_inputs()}
        return session.run(None, inputs)[0], golden["0.out.logits"]

    def close(self, session):
        got, want = self.outputs(session)
        self.assertLess(np.abs(got - want).max() / np.abs(want).max(), 1e-5)

    def test_kernels_run(self):
        mojo_patch.apply(MODEL, self.patched, verify="off")
        bare = onnx.load(str(self.patched))
        del bare.functions[:]  # so that nothing but the kernels can run it
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        with self.assertRaises(Exception):
            onnxruntime.InferenceSession(bare.SerializeToString(), options, providers=["CPUExecutionProvider"])
        self.close(mojo_patch.session(bare))
        self.close(mojo_patch.session(bare.SerializeToString(), options, ["CPUExecutionProvider"]))
        self.close(mojo_patch.session(self.patched, providers=[("CPUExecutionProvider", {})]))
        self.close(mojo_patch.session(str(self.patched)))

    def test_options_of_several_sessions(self):
        mojo_patch.apply(MODEL, self.patched, verify="off")
        options = onnxruntime.SessionOptions()
        for _ in range(3):
            self.close(mojo_patch.session(self.patched, options))
        registered = onnxruntime.SessionOptions()
        registered.register_custom_ops_library(mojo_patch.get_library_path())
        with self.assertRaisesRegex(mojo_patch.MojoPatchError, "make new SessionOptions"):
            mojo_patch.session(self.patched, registered)

    def test_library_path(self):
        mojo_patch.apply(MODEL, self.patched, verify="off")
        options = onnxruntime.SessionOptions()
        options.register_custom_ops_library(mojo_patch.get_library_path())
        self.close(onnxruntime.InferenceSession(str(self.patched), options, providers=["CPUExecutionProvider"]))


@unittest.skipUnless(CAN_RUN, "there is no onnxruntime that the program runs models with")
class Diff(Test):
    def test_diff(self):
        mojo_patch.apply(MODEL, self.patched, verify="off")
        result = mojo_patch.diff(MODEL, self.patched, cases=2, dim={"sequence": 9}, atol={"logits": 1e-4}, rtol=1e-3)
        self.assertTrue(result.passed)
        self.assertEqual(len(result.comparisons[0].cases), 2)
        output = result.comparisons[0].cases[0].outputs[0]
        self.assertEqual((output.name, output.dtype, output.shape[1]), ("logits", "float32", 9))
        self.assertEqual(output.logits.top1, 1)
        self.assertTrue(mojo_patch.diff(MODEL, self.patched, golden=GOLDEN).passed)
        self.assertTrue(mojo_patch.diff(self.patched, golden=GOLDEN).passed)

    def test_difference(self):
        result = mojo_patch.diff(MODEL, golden=GOLDEN, atol=0, rtol=0)
        self.assertFalse(result.passed)
        self.assertFalse(result.comparisons[0].cases[0].outputs[0].passed)
        with self.assertRaisesRegex(mojo_patch.MojoPatchError, "diff needs a second model, --golden FILE"):
            mojo_patch.diff(MODEL)


class Reports(Test):
    def unknown(self, kind, data, at):
        """Lists the keys of a JSON object that the dataclass lacks."""
        hints = _reports._fields(kind)
        for key, value in data.items():
            if key not in hints:
                yield f"{at}.{key}"
                continue
            hint = hints[key]
            inner = [t for t in getattr(hint, "__args__", ()) if hasattr(t, "__dataclass_fields__")]
            if hasattr(hint, "__dataclass_fields__"):
                inner = [hint]
            for v in (value if isinstance(value, list) else [value]) if inner else []:
                yield from self.unknown(inner[0], v, f"{at}.{key}")

    def test_every_field_is_known(self):
        seen = set()
        for kind, *arguments in [
            (_reports.Report, "match", MODEL),
            (_reports.Report, "match", MODELS / "broken" / "moe-qwen3moe-eager-ts-fp32.onnx"),
            (_reports.Report, "match", MODELS / "qwen3moe-batched_mm-dynamo-bf16.onnx", "--verify=off"),
            (_reports.Report, "match", MODELS / "moe-gelu-ts-fp32.onnx", "--target=ascend"),
            (_reports.Report, "match", MODELS / "llama-merged-ts-fp32.onnx", "--inline=all", "--verify=off"),
            (_reports.Inspection, "inspect", MODEL),
            (_reports.Inspection, "inspect", MODELS / "broken" / "moe-qwen3moe-eager-ts-fp32.onnx"),
            (_reports.Difference, "diff", MODEL, "--golden", GOLDEN, "--evaluator"),
        ]:
            done = self.command(*arguments, "--json")
            self.assertIn(done.returncode, (0, 1), done.stderr)
            printed = json.loads(done.stdout)
            self.assertEqual(list(self.unknown(kind, printed, kind.__name__)), [], arguments)
            seen.add(type(_reports.read(kind, printed)))
        self.assertEqual(len(seen), 3)

    def differing(self, kind, schema, root, at):
        """Lists the fields that either a dataclass or the schema of its JSON lacks."""
        while not schema.get("properties"):
            ref = schema.get("$ref")
            schema = root["$defs"][ref.rpartition("/")[2]] if ref else schema["items"]
        hints, properties = _reports._fields(kind), schema["properties"]
        yield from sorted(f"{at}.{name}" for name in hints.keys() ^ properties.keys())
        for name in hints.keys() & properties.keys():
            for hint in (hints[name], *getattr(hints[name], "__args__", ())):
                if hasattr(hint, "__dataclass_fields__"):
                    yield from self.differing(hint, properties[name], root, f"{at}.{name}")

    def test_fields_are_those_of_the_schemas(self):
        for kind, name in [
            (_reports.Report, "report"),
            (_reports.Inspection, "inspect"),
            (_reports.Difference, "diff"),
            (_reports.GenAIFolder, "export-genai"),
            (_reports.TritonModel, "export-triton"),
            (_reports.KernelTrial, "kernels"),
        ]:
            with self.subTest(name):
                root = json.loads((ROOT / "docs" / "schemas" / f"{name}.json").read_text(encoding="utf-8"))
                schema = root["properties"]["kernels"] if name == "kernels" else root
                self.assertEqual(list(self.differing(kind, schema, root, kind.__name__)), [])

    def test_values(self):
        data = {"nan": 1, "inf": 2, "newer": 3}
        self.assertEqual(_reports.read(_reports.NonFinite, data), _reports.NonFinite(1, 2))
        element = _reports.read(_reports.Element, {"index": None, "got": "NaN", "want": "-Inf"})
        self.assertEqual((element.index, element.want), ([], float("-inf")))
        self.assertNotEqual(element.got, element.got)


class Errors(Test):
    def check(self, error, code, *arguments):
        """The exception has the exit code and the words of the command."""
        done = self.command(*arguments)
        self.assertEqual((done.returncode, error.exit_code), (code, code))
        self.assertIn("mojo-patch: " + str(error) + "\n", done.stderr)

    def test_messages(self):
        damaged = self.temp / "damaged.onnx"
        damaged.write_bytes(MODEL.read_bytes()[:100000])
        nothing = self.temp / "empty.onnx"
        nothing.write_bytes(b"")
        for path, options, kind, code, *flags in [
            (self.temp / "none.onnx", {}, mojo_patch.ModelNotFound, 2),
            (self.temp, {}, mojo_patch.MojoPatchError, 2),
            (damaged, {}, mojo_patch.MojoPatchError, 2),
            (nothing, {}, mojo_patch.MojoPatchError, 2),
            (MODEL, {"kernels": "cpu_fused_nothing"}, mojo_patch.MojoPatchError, 2, "--include=cpu_fused_nothing"),
            (MODEL, {"target": "toaster"}, mojo_patch.MojoPatchError, 2, "--target=toaster"),
            (MODEL, {"external_data_over": -1}, mojo_patch.MojoPatchError, 2, "--external-data-over=-1"),
            (MODEL, {"kernels": "none", "require": True}, mojo_patch.NothingFused, 3, "--include=none", "--require"),
            (MODEL, {"kernels_lib": self.temp}, mojo_patch.NotInstalled, 4, "--kernels-lib", self.temp),
        ]:
            with self.assertRaises(mojo_patch.MojoPatchError) as raised:
                mojo_patch.apply(path, self.patched, **options)
            self.assertIs(type(raised.exception), kind)
            self.check(raised.exception, code, "apply", path, "-o", self.patched, *flags)
        self.assertEqual(self.left(), ["damaged.onnx", "empty.onnx"])
        with self.assertRaisesRegex(mojo_patch.MojoPatchError, "its folder does not exist"):
            mojo_patch.apply(MODEL, self.temp / "no" / "folder.onnx")

    def test_golden_fails(self):
        wrong = dict(np.load(str(GOLDEN)))
        wrong["0.out.logits"] = wrong["0.out.logits"] + 1
        np.savez(str(self.temp / "wrong.npz"), **wrong)
        with self.assertRaisesRegex(mojo_patch.CheckFailed, "does not reproduce case 0"):
            mojo_patch.apply(MODEL, self.patched, golden=self.temp / "wrong.npz", evaluator=True)
        self.assertEqual(self.left(), ["wrong.npz"])

    def test_arguments(self):
        with self.assertRaisesRegex(TypeError, r"apply\(\) got an unexpected keyword argument 'kernel'"):
            mojo_patch.apply(MODEL, self.patched, kernel="auto")
        with self.assertRaisesRegex(TypeError, r"diff\(\) got an unexpected keyword argument 'kernel'"):
            mojo_patch.diff(MODEL, MODEL, kernel="auto")

    def test_pickle(self):
        error = pickle.loads(pickle.dumps(mojo_patch.NothingFused("nothing", 3)))
        self.assertEqual((type(error), str(error), error.exit_code), (mojo_patch.NothingFused, "nothing", 3))

    def test_learn(self):
        # Known patterns match all blocks of this model: the file has no pattern, but is a valid pattern file.
        learnt = self.temp / "learnt.pat"
        report = mojo_patch.apply(MODEL, self.patched, learn=learnt, verify="off", check_kernels="off",
                                  assume_available=True)
        self.assertEqual((report.learnt.fitted, report.learnt.patterns), (0, []))
        again = mojo_patch.match(MODEL, patterns=[learnt], verify="off", check_kernels="off", assume_available=True)
        self.assertEqual(again.fused, report.fused)
        self.assertIsNone(again.learnt)

    def test_options_are_flags(self):
        # Every option is a flag of the command.
        for options, command in [(mojo_patch._apply.ApplyOptions, "apply"), (mojo_patch._apply.DiffOptions, "diff")]:
            known = self.command(command, "--help").stdout
            names = set(typing.cast(dict, options.__annotations__)) - {"progress"}
            for name in names:
                flag = "include" if (command, name) == ("apply", "kernels") else name.rstrip("_").replace("_", "-")
                self.assertIn(f"--{flag} ", known, (command, name))


class Progress(Test):
    def script(self, code, **how):
        environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
        return subprocess.Popen([sys.executable, "-c", code, str(MODEL), str(self.patched)], env=environment, **how)

    @unittest.skipIf(os.name == "nt", "there are no pseudo-terminals")
    def test_bar_on_a_terminal(self):
        import fcntl
        import struct
        import termios

        ours, its = os.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 25, 80, 0, 0))
        process = self.script("import mojo_patch, sys; mojo_patch.apply(*sys.argv[1:])", stderr=its)
        os.close(its)
        shown = b""
        while True:
            try:
                chunk = os.read(ours, 4096)
            except OSError:  # the other side is closed
                break
            if not chunk:
                break
            shown += chunk
        os.close(ours)
        self.assertEqual(process.wait(), 0, shown)
        self.assertIn(b"checking site:   0%", shown)

    def test_silence_elsewhere(self):
        process = self.script("import mojo_patch, sys; mojo_patch.apply(*sys.argv[1:])", stderr=subprocess.PIPE)
        self.assertEqual(process.communicate()[1], b"")
        with self.assertLogs("mojo_patch", logging.DEBUG) as logs:
            mojo_patch.apply(MODEL, self.patched)
        self.assertTrue(any("checking site" in line for line in logs.output))

    def test_wanted_or_not(self):
        code = "import mojo_patch, sys; mojo_patch.apply(*sys.argv[1:], progress=%s)"
        self.assertIn(b"checking site", self.script(code % True, stderr=subprocess.PIPE).communicate()[1])
        self.assertEqual(self.script(code % False, stderr=subprocess.PIPE).communicate()[1], b"")


@unittest.skipIf(os.name == "nt", "signals are POSIX's")
class Interrupt(Test):
    def test_ctrl_c(self):
        given, out = self.temp / "given", self.temp / "out"
        given.mkdir()
        out.mkdir()
        big_model.write(given / "big.onnx")
        code = "import mojo_patch, sys; mojo_patch.apply(*sys.argv[1:], verify='off')"
        # As slow as on a busy machine: the program runs, and Python has not come to waiting for it yet.
        slow = "import {0}, time; do = {0}.{1}; {0}.{1} = lambda *a, **k: (do(*a, **k), time.sleep(0.3))[0]; " + code
        both = lambda p: os.killpg(p.pid, signal.SIGINT)  # as a terminal does
        alone = lambda p: p.send_signal(signal.SIGINT)  # as a notebook does
        for script, send in [(code, alone), (code, both), (slow.format("subprocess", "Popen._execute_child"), alone),
                             (slow.format("threading", "Thread.start"), alone)]:
            command = [sys.executable, "-c", script, str(given / "big.onnx"), str(out / "patched.onnx")]
            process = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)
            deadline = time.monotonic() + 120
            while not os.listdir(str(out)) and time.monotonic() < deadline:
                time.sleep(0.001)
            send(process)
            said = process.communicate()[1]
            if process.returncode == 0:
                self.skipTest("this file system copies 2 GB in no time")
            self.assertIn(b"KeyboardInterrupt", said)
            self.assertEqual(os.listdir(str(out)), [])


if __name__ == "__main__":
    unittest.main()
