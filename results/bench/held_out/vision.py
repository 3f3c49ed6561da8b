"""Models of torchvision and timm: segmentation, detection, optical flow, video and classification."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torchvision
from torch import nn

Built = tuple[nn.Module, tuple[torch.Tensor, ...]]


class Adapted(nn.Module):
    """A model as a function of tensors that returns tensors: what exporters and compilers see."""

    def __init__(self, model: nn.Module, call: Callable[..., Any]) -> None:
        super().__init__()
        self.model = model
        self._call = call

    def forward(self, *inputs: torch.Tensor) -> Any:
        """Return ``call`` of the model and the inputs."""
        return self._call(self.model, *inputs)


def segmentation(name: str, side: int) -> Built:
    """A segmentation model of torchvision: images to a score of each class at each pixel."""
    model = torchvision.models.get_model(name, weights=None, weights_backbone=None)
    return Adapted(model, lambda net, x: net(x)["out"]), (torch.rand(1, 3, side, side),)


def ssdlite(side: int) -> Built:
    """Backbone and heads of SSDlite: scores and boxes of all anchors. What follows has shapes that depend on data."""
    model = torchvision.models.get_model("ssdlite320_mobilenet_v3_large", weights=None, weights_backbone=None)
    return Adapted(model, _scores_and_boxes), (torch.rand(1, 3, side, side),)


def retinanet(side: int) -> Built:
    """Backbone, feature pyramid and heads of RetinaNet."""
    model = torchvision.models.get_model("retinanet_resnet50_fpn", weights=None, weights_backbone=None)
    return Adapted(model, _scores_and_boxes), (torch.rand(1, 3, side, side),)


def _scores_and_boxes(net: Any, images: torch.Tensor) -> Any:
    found = net.head(list(net.backbone(images).values()))
    return found["cls_logits"], found["bbox_regression"]


def raft(side: int, updates: int) -> Built:
    """RAFT: two images to the flow between them, after so many updates."""
    model = torchvision.models.get_model("raft_small", weights=None)
    images = torch.rand(1, 3, side, side), torch.rand(1, 3, side, side)
    return Adapted(model, lambda net, a, b: net(a, b, num_flow_updates=updates)[-1]), images


def swin3d(frames: int, side: int) -> Built:
    """Video Swin Transformer, of its tiny size."""
    model = torchvision.models.get_model("swin3d_t", weights=None)
    return Adapted(model, lambda net, x: net(x)), (torch.rand(1, 3, frames, side, side),)


def classifier(name: str, side: int) -> Built:
    """A classifier of timm."""
    import timm

    model = timm.create_model(name, pretrained=False, exportable=True)
    return Adapted(model, lambda net, x: net(x)), (torch.rand(1, 3, side, side),)


__all__ = ["Adapted", "Built", "classifier", "raft", "retinanet", "segmentation", "ssdlite", "swin3d"]
