#!/usr/bin/env python3
"""Writes models without language blocks, with random weights: vision (torchvision, timm), speech and tabular.

    make.py --out DIR

Needs tools/requirements/plain.txt. A model that its exporter cannot write is named and left out.
"""

import argparse
import pathlib
import sys
import warnings

import numpy as np
import onnx
import skl2onnx
import timm
import torch
import torchvision
from sklearn import (
    datasets,
    ensemble,
    linear_model,
    naive_bayes,
    neighbors,
    neural_network,
    pipeline,
    preprocessing,
    svm,
    tree,
)
from torch import nn

# Architectures of torchvision and timm, and the edge of the images that they are traced with.
TORCHVISION = """resnet18 resnet34 squeezenet1_0 squeezenet1_1 densenet121
    mobilenet_v2 mobilenet_v3_small mobilenet_v3_large mnasnet0_5 mnasnet1_0 shufflenet_v2_x0_5 shufflenet_v2_x1_0
    efficientnet_b0 efficientnet_b1 regnet_y_400mf regnet_x_400mf regnet_y_800mf googlenet convnext_tiny swin_t
    swin_v2_t maxvit_t""".split()
TIMM = """ghostnet_050 ghostnet_100 lcnet_050 tinynet_e hardcorenas_a mixnet_s semnasnet_075 spnasnet_100 fbnetc_100
    mobilenetv4_conv_small repvgg_a0 resnet10t resnet14t resnetv2_18 seresnet18 skresnet18 selecsls42 dla34 dla46_c
    cspresnet50 cspdarknet53 hrnet_w18_small res2net50_26w_4s resnest14d gernet_s nfnet_l0 rexnet_100 eca_resnet33ts
    edgenext_xx_small convnext_atto convnextv2_atto convmixer_768_32 poolformer_s12 mixer_s32_224 resmlp_12_224
    gmlp_ti16_224 deit_tiny_patch16_224 vit_tiny_patch16_224 vit_tiny_r_s16_p8_224 levit_128s mobilevit_xxs
    mobilevitv2_050 pit_ti_224 pvt_v2_b0 xcit_nano_12_p16_224 coat_tiny visformer_tiny tnt_s_legacy_patch16_224
    efficientformer_l1 fastvit_t8 repvit_m0_9 starnet_s1 inception_next_atto focalnet_tiny_srf""".split()


class Recurrent(nn.Module):
    def __init__(self, kind, classes=40):
        super().__init__()
        self.before = nn.Conv1d(40, 64, 3, padding=1)
        self.cell = kind(64, 64, num_layers=2, bidirectional=True, batch_first=True)
        self.after = nn.Linear(128, classes)

    def forward(self, x):
        y, _ = self.cell(torch.relu(self.before(x)).transpose(1, 2))
        return torch.log_softmax(self.after(y), -1)


class Separator(nn.Module):
    """Conv-TasNet's shape: dilated convolutions with global norms, a sigmoid mask."""

    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Conv1d(1, 64, 16, 8), nn.ConvTranspose1d(64, 1, 16, 8)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.GroupNorm(1, 64), nn.Conv1d(64, 64, 3, padding=2**i, dilation=2**i, groups=64), nn.PReLU(),
                          nn.Conv1d(64, 64, 1)) for i in range(4)
        )  # fmt: skip

    def forward(self, x):
        y = z = torch.relu(self.encode(x))
        for b in self.blocks:
            z = z + b(z)
        return self.decode(y * torch.sigmoid(z))


class GatedConv(nn.Module):
    """WaveNet's unit: tanh times sigmoid, which is not a gated unit of the catalogue."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv1d(32, 64, 2, dilation=2**i, padding=2**i) for i in range(5))

    def forward(self, x):
        for layer in self.layers:
            a, b = layer(x)[..., : x.shape[-1]].chunk(2, 1)
            x = x + torch.tanh(a) * torch.sigmoid(b)
        return x


class Gates(nn.Module):
    """A TabNet-like step: GLU with a sigmoid, which is not a gated unit of the catalogue either."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 64), nn.Linear(32, 64)

    def forward(self, x):
        return nn.functional.glu(self.b(nn.functional.glu(self.a(x), -1)), -1)


def mlp(*widths, activation=nn.ReLU):
    layers = []
    for a, b in zip(widths, widths[1:]):
        layers += [nn.Linear(a, b), nn.BatchNorm1d(b), activation()]
    return nn.Sequential(*layers)


OWN = {
    "speech-lstm": (lambda: Recurrent(nn.LSTM), (1, 40, 50)),
    "speech-gru": (lambda: Recurrent(nn.GRU), (1, 40, 50)),
    "speech-separator": (Separator, (1, 1, 800)),
    "speech-gated-conv": (GatedConv, (1, 32, 64)),
    "tabular-mlp": (lambda: mlp(16, 64, 64, 3), (5, 16)),
    "tabular-selu": (lambda: mlp(16, 64, 3, activation=nn.SELU), (5, 16)),
    "tabular-silu": (lambda: mlp(16, 64, 3, activation=nn.SiLU), (5, 16)),
    "tabular-gates": (Gates, (5, 16)),
    "vision-autoencoder": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 4, 2, 1), nn.GELU(), nn.ConvTranspose2d(8, 3, 4, 2, 1), nn.Sigmoid()),
        (1, 3, 32, 32),
    ),
    "vision-lrn": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.LocalResponseNorm(5), nn.MaxPool2d(2)), (1, 3, 32, 32),
    ),
    "vision-instance": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.InstanceNorm2d(8, affine=True), nn.Upsample(scale_factor=2)),
        (1, 3, 32, 32),
    ),
}  # fmt: skip

SKLEARN = {
    "logistic": linear_model.LogisticRegression(max_iter=50),
    "ridge": linear_model.Ridge(),
    "lasso": linear_model.Lasso(),
    "sgd": linear_model.SGDClassifier(),
    "tree": tree.DecisionTreeClassifier(max_depth=5),
    "forest": ensemble.RandomForestClassifier(10),
    "boosting": ensemble.GradientBoostingClassifier(n_estimators=10),
    "adaboost": ensemble.AdaBoostClassifier(n_estimators=5),
    "bayes": naive_bayes.GaussianNB(),
    "neighbors": neighbors.KNeighborsClassifier(3),
    "svc": svm.SVC(probability=False),
    "mlp": neural_network.MLPClassifier((16,), max_iter=20),
    "scaled": pipeline.make_pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression(max_iter=50)),
    "normalized": pipeline.make_pipeline(preprocessing.Normalizer(), linear_model.LogisticRegression(max_iter=50)),
}


def export(module, shape, path):
    torch.onnx.export(
        module.eval(), (torch.randn(shape),), str(path), dynamo=False, opset_version=17, input_names=["x"],
        dynamic_axes={"x": {0: "batch"}},
    )  # fmt: skip


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--out", type=pathlib.Path, required=True)
    out = p.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    warnings.simplefilter("ignore")
    work = [(f"torchvision-{n}", lambda n=n: torchvision.models.get_model(n, weights=None), None) for n in TORCHVISION]
    work += [(f"timm-{n}", lambda n=n: timm.create_model(n, pretrained=False, exportable=True), None) for n in TIMM]
    work += [(n, make, shape) for n, (make, shape) in OWN.items()]
    written = 0
    for name, make, shape in work:
        path = out / f"{name}.onnx"
        if path.exists():
            continue
        try:
            export(make(), shape or (1, 3, 224, 224), path)
            written += 1
        except Exception as e:
            path.unlink(missing_ok=True)
            print(f"{name}: {type(e).__name__}: {str(e)[:200]}", file=sys.stderr)
    x, y = datasets.load_iris(return_X_y=True)
    for name, model in SKLEARN.items():
        model.fit(x, y)
        proto = skl2onnx.to_onnx(model, x[:1].astype(np.float32), target_opset=17)
        onnx.save(proto, out / f"sklearn-{name}.onnx")
        written += 1
    print(f"{written} models in {out}")


if __name__ == "__main__":
    main()
