"""Runs the blocks of the documents for users of Python, as they stand there.

    python python/tests/test_docs.py

with the Python of an environment that has the wheel, onnx, onnxruntime and numpy. The quickstart is run in the
environment that it makes itself, venv in the clone. Where torch and transformers are missing, a bundled model stands in
for what export.py writes.
"""

import ast
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "qwen3-dynamo-fp32.onnx"
CAN_EXPORT = all(importlib.util.find_spec(m) for m in ("torch", "transformers", "onnxscript"))


def blocks(path):
    """The code in a document: language and text."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / path).read_text(encoding="utf-8"), re.M | re.S)


class Documents(unittest.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory()
        self.addCleanup(temp.cleanup)
        self.temp = pathlib.Path(temp.name)
        shutil.copyfile(str(MODEL), str(self.temp / "model.onnx"))
        shutil.copyfile(str(MODEL.with_suffix(".npz")), str(self.temp / "model.npz"))
        # The documents' `python` is this one, and pip may install nothing.
        self.environment = {**os.environ, "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1",
                            "PATH": os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]}

    def run_script(self, *command):
        done = subprocess.run(command, cwd=str(self.temp), env=self.environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, encoding="utf-8", check=False)
        self.assertEqual(done.returncode, 0, f"{command}\n{done.stdout[-2000:]}")
        return done.stdout

    def install(self, text):
        """Runs the first block verbatim, in the clone, and puts its results first in the PATH."""
        environment = ROOT / "venv"
        if not environment.exists():
            self.addCleanup(shutil.rmtree, str(environment), ignore_errors=True)
        fresh = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHONPATH")}
        done = subprocess.run(["bash", "-euc", text], cwd=str(ROOT), env=fresh, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, encoding="utf-8", check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:])
        return {**fresh, "PATH": str(environment / "bin") + os.pathsep + fresh["PATH"], "VIRTUAL_ENV": str(environment)}

    def test_quickstart(self):
        printed = []
        ours = self.environment
        for language, text in blocks("docs/quickstart.md"):
            if "make wheel" in text:
                installed = self.install(text)
            elif language == "python":
                name = re.match(r"# (\w+\.py)\n", text).group(1)
                (self.temp / name).write_text(text, encoding="utf-8")
            elif "export.py" not in text or CAN_EXPORT:
                self.environment = ours if "export.py" in text else installed
                printed.append(self.run_script("bash", "-euc", text))
        self.assertIn("13 sites fused", "".join(printed))
        self.assertRegex(printed[-1][-2000:], r"(?m)^\[1, 2, 3(, \d+){8}\]$")

    def in_one_process(self, path):
        code = "".join(text for language, text in blocks(path) if language == "python")
        self.assertTrue(code)
        golden = np.load(str(MODEL.with_suffix(".npz")))
        np.savez(str(self.temp / "inputs.npz"), **{k[5:]: v for k, v in golden.items() if k.startswith("0.in.")})
        code = "import numpy\ninputs = dict(numpy.load('inputs.npz'))\n" + code
        return self.run_script(sys.executable, "-c", code)

    def test_python(self):
        self.assertIn("2 cannot read model: open missing.onnx", self.in_one_process("docs/python.md"))

    def test_readme_of_the_package(self):
        self.assertIn("13 blocks fused", self.in_one_process("python/README.md"))

    def test_notebook(self):
        path = ROOT / "docs" / "examples" / "python" / "first_patch.ipynb"
        cells = [c for c in json.loads(path.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code"]
        self.assertFalse([c for c in cells if c["outputs"] or c["execution_count"]], "the file has outputs")
        self.addCleanup(os.chdir, os.getcwd())
        self.addCleanup(setattr, tempfile, "tempdir", tempfile.tempdir)
        tempfile.tempdir = str(self.temp)
        os.chdir(str(path.parent))
        shown, names = [], {}
        for cell in cells:
            tree = ast.parse("".join(cell["source"]))
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, path.name, "exec"), names)
            if last is not None:
                shown.append(eval(compile(ast.Expression(last.value), path.name, "eval"), names))
        report, left, shape, difference = shown
        self.assertEqual(repr(report), "<Report qwen3-dynamo-fp32.onnx: 215 \u2192 51 nodes, 13 fused, 0 refused>")
        self.assertRegex(report._repr_html_(), r"^<p>.*</p><table>.*<td[^>]*>Attention</td><td[^>]*>2</td>.*</table>$")
        self.assertEqual((left, shape), (([], 51), (2, 7, 160)))
        self.assertTrue(difference.passed)
        self.assertRegex(repr(difference), r"^<Difference passed, 1 case, greatest difference \S+ \(logits\)>$")
        self.assertRegex(difference._repr_html_(), r"<td[^>]*>logits</td><td[^>]*>float32</td>.*<td[^>]*>passed</td>")


if __name__ == "__main__":
    unittest.main()
