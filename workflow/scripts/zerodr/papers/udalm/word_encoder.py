"""Extend a bi-encoder by the layer that predicts masked words."""

from pathlib import Path

from zerodr.encoders.network.trainable import BiEncoder
from zerodr.encoders.pretraining.additions import NO_HEAD, PREDICTION, load_additions, write_additions
from zerodr.encoders.pretraining.condenser import HeadedEncoder


class WordEncoder(BiEncoder):
    """A tied bi-encoder with a layer that predicts masked words, which is trained, resumed and saved with it.

    Args:
        model: the bi-encoder.
        seed: of a fresh layer.

    Raises:
        ModelError: it has two towers, or is of a family that predicts no tokens.
    """

    def __init__(self, model: BiEncoder, seed: int) -> None:
        super().__init__(model.contract, model.tokenizer, dict(model.towers.items()), model.precision)  # type: ignore[arg-type]  # towers
        prediction = HeadedEncoder(self, seed=seed).prediction
        assert prediction is not None, "asked for by default"
        self.prediction = prediction

    def headed(self) -> HeadedEncoder:
        """Give the network as pretraining takes it, with the same weights."""
        headed = HeadedEncoder(self, predicts=False)
        headed.prediction = self.prediction
        return headed

    def take(self, folder: Path) -> str:
        """Load the prediction layer of a model folder.

        Returns:
            where it comes from: `pretraining`, the `checkpoint`, or `fresh`, where the folder has none.
        """
        return load_additions(self.headed(), folder, False)["prediction"]

    def save(self, folder: Path) -> None:
        """Write the bi-encoder as a model folder, and the prediction layer into its subfolder of pretraining."""
        super().save(folder)
        weights = {f"{PREDICTION}{name}": value for name, value in self.prediction.state_dict().items()}
        write_additions(folder, weights, NO_HEAD)
