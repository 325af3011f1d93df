"""Makes the screenshots of the pages of --html again: report*.webp and diff.webp, in this folder.

    python docs/figures/screens.py

Run it in the repository, with the Python of an environment that has numpy, onnx and pillow. It needs build/mojo-patch
with its kernels, an onnxruntime that the program finds, and chromium.
"""

import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from PIL import Image

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MODEL = ROOT / "models" / "qwen3-dynamo-fp32.onnx"
COLORS = 40


def run(*arguments, codes=(0,)):
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, check=False)
    if done.returncode not in codes:
        sys.exit(f"{arguments} exits with {done.returncode}:\n{done.stderr}")


def screen(page, width, height, section=""):
    """Returns a picture of a page, from a section on."""
    shown = page.with_suffix(".shown.html")
    script = ""
    if section:
        script = (f"<script>const s=document.querySelector('#{section}').closest('section');"
                  "document.querySelectorAll('header,nav').forEach(e=>e.remove());"
                  "while(s.previousElementSibling)s.previousElementSibling.remove();"
                  "s.style.border='none';s.style.margin='0'</script>")
    shown.write_text(page.read_text(encoding="utf-8") + script, encoding="utf-8")
    frame = page.with_suffix(".frame.html")  # may be narrower than the least width of the browser's window
    frame.write_text(f'<!doctype html><body style="margin:0"><iframe src="{shown.name}" '
                     f'style="border:0;display:block;width:{width}px;height:{height}px"></iframe>', encoding="utf-8")
    picture = page.with_suffix(".png")
    run("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
        f"--user-data-dir={page.parent / 'profile'}", f"--window-size={max(width, 500)},{height}",
        "--blink-settings=preferredColorScheme=1", f"--screenshot={picture}", frame.as_uri())
    with Image.open(picture) as image:
        return image.convert("RGB").crop((0, 0, width, height))


def save(image, name):
    """Writes a picture with few colors, which makes a small file: the most frequent ones, and some of all kinds."""
    path = HERE / name
    frequent = sorted(image.getcolors(1 << 24), reverse=True)[:COLORS]
    kinds = image.quantize(COLORS, Image.Quantize.MAXCOVERAGE).convert("RGB").getcolors()
    palette = np.array([color for _, color in frequent + kinds])
    colors, index = np.unique(np.asarray(image).reshape(-1, 3), axis=0, return_inverse=True)
    distance = ((colors[:, None].astype(int) - palette) ** 2).sum(-1)
    few = palette[distance.argmin(1)][index.ravel()].reshape(image.height, image.width, 3)
    Image.fromarray(few.astype(np.uint8)).save(path, lossless=True, quality=100, method=6)
    print(f"{path.relative_to(ROOT)}: {image.width} x {image.height}, {path.stat().st_size} bytes")


def main():
    program = ROOT / "build" / "mojo-patch"
    with tempfile.TemporaryDirectory() as name:
        temp = pathlib.Path(name)
        patched, wrong = temp / "patched.onnx", temp / "wrong.onnx"
        report, diff = temp / "report.html", temp / "diff.html"
        run(program, "apply", MODEL, "-o", patched, "--html", report)
        save(screen(report, 1110, 1150), "report.webp")
        save(screen(report, 1110, 1750, "drawn"), "report-blocks.webp")

        model = onnx.load(patched)
        [norm] = [n for n in model.graph.node if n.output[0] == "mul_201"]  # in the second layer
        [epsilon] = [a for a in norm.attribute if a.name == "epsilon"]
        epsilon.f = 1e-2
        onnx.save(model, wrong)
        run(program, "diff", MODEL, wrong, "--html", diff, codes=(1,))
        save(screen(diff, 1000, 850), "diff.webp")


if __name__ == "__main__":
    main()
