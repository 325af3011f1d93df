"""Patches every model of a folder, each as a task of Ray: on one machine, or on all that a cluster has.

usage: patch_folder.py FOLDER OUTPUT [OPTION=VALUE…]        (pip install ray mojo-patch; options of mojo_patch.apply)

The folders have to be the same on every node. What was patched before is not patched again.
"""

import pathlib
import sys

import ray


@ray.remote(num_cpus=1, max_retries=2)  # tried again if a node is lost, not if the model is refused
def patch(model, output, options):
    import mojo_patch

    try:
        report = mojo_patch.apply(model, output, **options)
    except mojo_patch.MojoPatchError as e:
        return f"failed: {e}"
    return f"{report.fused} of {len(report.sites)} sites fused"


def main():
    folder, output, *options = sys.argv[1:]
    folder, output = pathlib.Path(folder).resolve(), pathlib.Path(output).resolve()
    options = {name: True if value == "True" else value for name, value in (option.split("=", 1) for option in options)}
    models = {}  # by the task to await
    for model in sorted(folder.rglob("*.onnx")):
        target = output / model.relative_to(folder)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            models[patch.remote(str(model), str(target), options)] = model.relative_to(folder)
    failed = 0
    while models:
        for task in ray.wait(list(models))[0]:
            said = ray.get(task)
            failed += said.startswith("failed")
            print(f"{models.pop(task)}: {said}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
