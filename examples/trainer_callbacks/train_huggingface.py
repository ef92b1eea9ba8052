"""A tiny BERT, built from a configuration, learns which of two tokens is more frequent in a sequence."""

import torch
from huggingface import BatchscaleCallback, make_arguments, train
from transformers import BertConfig, BertForSequenceClassification, Trainer, set_seed

from batchscale import trial

run = trial.start(learning_rate=1e-3, batch_size=16, max_steps=60, every=20)
set_seed(run.seed)


def make_examples(count: int, seed: int) -> list[dict[str, torch.Tensor]]:
    tokens = torch.randint(0, 4, (count, 9), generator=torch.Generator().manual_seed(seed))
    labels = ((tokens == 1).sum(1) > (tokens == 2).sum(1)).long()
    return [{"input_ids": row, "labels": label} for row, label in zip(tokens, labels, strict=True)]


def measure(prediction) -> dict[str, float]:
    return {"error": float((prediction.predictions.argmax(-1) != prediction.label_ids).mean())}


config = BertConfig(vocab_size=4, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
                    max_position_embeddings=16)  # fmt: skip
train(
    Trainer(
        model=BertForSequenceClassification(config),
        args=make_arguments(run, use_cpu=True, lr_scheduler_type="constant"),
        train_dataset=make_examples(2000, seed=1),
        eval_dataset=make_examples(500, seed=2),
        compute_metrics=measure,
        callbacks=[BatchscaleCallback(run, {"eval_error": "val/error", "eval_loss": "val/loss"})],
    ),
    run,
)
