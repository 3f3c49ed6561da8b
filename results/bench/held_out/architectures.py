"""The architectures, as data: what each is, and the function that builds it where PyTorch is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

EXPORTERS = ("dynamo", "torchscript")
"""PyTorch's exporters: of ``torch.export`` programs, and of traces."""
WRITTEN = "written"
"""The module that writes models itself, which stands for their exporter, too."""


@dataclass(frozen=True)
class Architecture:
    """``family`` is the task; ``builder`` is ``module:function`` in this package, called with ``arguments``.

    The function returns a model in evaluation mode and the tuple of tensors that it takes; one of :data:`WRITTEN` an
    ONNX model and its inputs by name. ``tolerance`` is what the model is compiled with, None for the default.
    """

    name: str
    family: str
    builder: str
    arguments: tuple[str | int, ...] = ()
    tolerance: float | None = None

    def exporters(self, asked: Sequence[str]) -> Sequence[str]:
        """Return those of the exporters that are asked for which write it."""
        return (WRITTEN,) if self.builder.startswith(f"{WRITTEN}:") else asked


ARCHITECTURES: tuple[Architecture, ...] = (
    Architecture("deeplabv3", "segmentation", "vision:segmentation", ("deeplabv3_mobilenet_v3_large", 224)),
    # Its 54 layers each enlarge what the ones before are off by, 360 times in all: float32 itself is 1e-4 off.
    Architecture("fcn", "segmentation", "vision:segmentation", ("fcn_resnet50", 128), tolerance=1e-5),
    Architecture("lraspp", "segmentation", "vision:segmentation", ("lraspp_mobilenet_v3_large", 224)),
    Architecture("ssdlite", "detection", "vision:ssdlite", (320,)),
    Architecture("retinanet", "detection", "vision:retinanet", (256,)),
    Architecture("raft", "optical flow", "vision:raft", (128, 2)),
    Architecture("swin3d", "video", "vision:swin3d", (8, 64)),
    Architecture("regnety", "classification", "vision:classifier", ("regnety_004", 224)),
    Architecture("convnext", "classification", "vision:classifier", ("convnextv2_atto", 224)),
    Architecture("efficientnetv2", "classification", "vision:classifier", ("efficientnetv2_rw_t", 224)),
    Architecture("mobilevit", "classification", "vision:classifier", ("mobilevitv2_075", 256)),
    Architecture("mixer", "classification", "vision:classifier", ("mixer_s32_224", 224)),
    Architecture("llama", "language", "language:llama", (64,)),
    Architecture("gpt2_decode", "decoding with a cache", "language:gpt2_cache", (1, 128)),
    Architecture("gpt2_verify", "speculative decoding", "language:gpt2_cache", (5, 128)),
    Architecture("bert", "language", "language:bert", (128,)),
    Architecture("t5_encoder", "language", "language:t5_encoder", (128,)),
    Architecture("mixtral", "mixture of experts", "language:mixtral", (4,)),
    Architecture("mamba", "state space", "language:mamba", (32,)),
    Architecture("whisper_encoder", "speech", "language:whisper_encoder", (400,)),
    Architecture("unet", "diffusion", "blocks:diffusion_unet", (32,)),
    Architecture("vae_decoder", "diffusion", "blocks:vae_decoder", (16,)),
    Architecture("graph_network", "graph", "blocks:graph_network", (256, 1024)),
    Architecture("lstm", "recurrent", "blocks:lstm", (48,)),
    Architecture("lstm_long", "recurrent", "written:lstm", (4000, 2)),
    Architecture("detr", "detection", "language:detr", (256,)),
    Architecture("efficientnet", "classification", "vision:classifier", ("efficientnet_b0", 224)),
    Architecture("whisper_tiny", "speech", "language:whisper_encoder", (3000, 384, 4)),
    Architecture("whisper_decode", "decoding with a cache", "language:whisper_cache", (1, 64)),
    Architecture("t5_decode", "decoding with a cache", "language:t5_cache", (1, 64)),
    Architecture("experts", "mixture of experts", "blocks:experts", (64,)),
    Architecture("llama_int4", "decoding with a cache", "written:llama_int4", (1, 256)),
    Architecture("forest", "trees", "written:forest", (500, 8, 64)),
)

__all__ = ["ARCHITECTURES", "EXPORTERS", "Architecture"]
