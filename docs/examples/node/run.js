// Runs a patched model in onnxruntime-node and compares with recorded outputs.
//
//   npm ci
//   python3 -m zipfile -e GOLDEN.npz golden
//   node run.js PATCHED.onnx golden
//
// onnxruntime-node cannot register custom ops: its session options have nothing for it. The model runs on the
// definitions of its fused ops that it carries, so the results are the same and nothing is faster.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import ort from "onnxruntime-node";

// read reads an array of int64 or float32 that NumPy wrote. Its name is the model's, and stays in the folder.
function read(folder, kind, name) {
  if (/[/\\\0]/.test(name)) throw new Error(`${JSON.stringify(name)} cannot be the name of a file`);
  const path = join(folder, `0.${kind}.${name}.npy`);
  const file = readFileSync(path);
  const start = 10 + file.readUInt16LE(8);
  const header = file.toString("latin1", 10, start);
  const shape = header.match(/'shape': \(([^)]*)\)/)[1].split(",").filter((d) => d.trim()).map(Number);
  const bytes = file.buffer.slice(file.byteOffset + start, file.byteOffset + file.length);
  if (header.includes("'<i8'")) return new ort.Tensor("int64", new BigInt64Array(bytes), shape);
  if (header.includes("'<f4'")) return new ort.Tensor("float32", new Float32Array(bytes), shape);
  throw new Error(`${path}: neither int64 nor float32`);
}

const [model, golden] = process.argv.slice(2);
if (!golden) {
  console.error("usage: node run.js PATCHED.onnx GOLDEN_FOLDER");
  process.exit(2);
}
const session = await ort.InferenceSession.create(model);
const inputs = Object.fromEntries(session.inputNames.map((name) => [name, read(golden, "in", name)]));
const outputs = await session.run(inputs);

for (const name of session.outputNames) {
  const got = outputs[name].data;
  const want = read(golden, "out", name).data;
  let worst = got.length === want.length ? 0 : Infinity;
  let largest = 0;
  want.forEach((w, i) => {
    const difference = Math.abs(got[i] - w);
    if (!(difference <= worst)) worst = difference; // and so that NaN is kept
    largest = Math.max(largest, Math.abs(w));
  });
  console.log(`${name}: largest difference ${(worst / largest).toPrecision(2)} of the largest magnitude`);
  if (!(worst / largest < 1e-5)) {
    console.error("that is too much");
    process.exitCode = 1;
  }
}
