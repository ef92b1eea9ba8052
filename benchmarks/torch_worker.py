"""One process of PyTorch in the engine benchmark: the same models as a plain loop, eager or compiled, on one thread."""

import math
import os
import sys
from typing import Any

import torch
import torch.nn.functional as F
from engine_cases import Case
from engine_worker import serve
from torch import nn


class Cnn(nn.Module):
    """Simple CNN."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        first, second, units = case.widths
        self.convs = nn.ModuleList([nn.Conv2d(1, first, 5, padding=2), nn.Conv2d(first, second, 5, padding=2)])
        self.hidden, self.output = nn.Linear(7 * 7 * second, units), nn.Linear(units, case.num_outputs)
        self.rate = case.dropout

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        values = values.reshape(-1, 1, 28, 28)
        for conv in self.convs:
            values = F.max_pool2d(F.relu(conv(values)), 2)
        return self.output(F.dropout(F.relu(self.hidden(values.flatten(1))), self.rate, self.training))


class Layer(nn.Module):
    """A layer of the Transformer's decoder."""

    def __init__(self, width: int, heads: int, filter_width: int, rate: float) -> None:
        super().__init__()
        self.query, self.key, self.value, self.join = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.widen, self.narrow = nn.Linear(width, filter_width), nn.Linear(filter_width, width)
        self.attention_norm, self.network_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.heads, self.rate = heads, rate

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        count, length, width = values.shape
        query, key, value = (
            layer(values).view(count, length, self.heads, -1).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        joined = self.join(seen.transpose(1, 2).reshape(count, length, width))
        values = self.attention_norm(values + F.dropout(joined, self.rate, self.training))
        thought = self.narrow(F.relu(self.widen(values)))
        return self.network_norm(values + F.dropout(thought, self.rate, self.training))


class Transformer(nn.Module):
    """The decoder of the Transformer with outputs by the transposed embeddings."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        width, filter_width, layers = case.widths
        self.embed = nn.Embedding(case.num_outputs, width)
        self.layers = nn.ModuleList(Layer(width, case.heads, filter_width, case.dropout) for _ in range(layers))
        self.register_buffer("waves", torch.randn(case.shape[0], width))
        self.width, self.rate = width, case.dropout

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        values = self.embed(words) * math.sqrt(self.width) + self.waves
        values = F.dropout(values, self.rate, self.training)
        for layer in self.layers:
            values = layer(values)
        return values @ self.embed.weight.T


class Block(nn.Module):
    """A block of the GPT: normalized values into attention with rotary positions, and into a GELU network."""

    def __init__(self, width: int, heads: int, filter_width: int) -> None:
        super().__init__()
        self.query, self.key, self.value, self.join = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.widen, self.narrow = nn.Linear(width, filter_width, bias=False), nn.Linear(filter_width, width, bias=False)
        self.attention_norm, self.network_norm = nn.RMSNorm(width, 1e-6), nn.RMSNorm(width, 1e-6)
        self.heads = heads

    def forward(self, values: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        count, length, width = values.shape
        normed = self.attention_norm(values)
        query, key, value = (
            layer(normed).view(count, length, self.heads, -1).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        seen = F.scaled_dot_product_attention(rotate(query, cos, sin), rotate(key, cos, sin), value, is_causal=True)
        values = values + self.join(seen.transpose(1, 2).reshape(count, length, width))
        return values + self.narrow(F.gelu(self.widen(self.network_norm(values)), approximate="tanh"))


def rotate(values: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Channel pairs (c, c + half) turned by their position."""
    first, second = values.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


class Gpt(nn.Module):
    """The decoder-only model with outputs by the transposed embeddings."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        width, filter_width, layers = case.widths
        self.embed = nn.Embedding(case.num_outputs, width)
        nn.init.uniform_(self.embed.weight, -0.02 * math.sqrt(3), 0.02 * math.sqrt(3))
        self.blocks = nn.ModuleList(Block(width, case.heads, filter_width) for _ in range(layers))
        self.norm = nn.RMSNorm(width, 1e-6)
        half = width // case.heads // 2
        angles = torch.arange(case.shape[0])[:, None] * 10_000.0 ** (-torch.arange(half) / half)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        values = self.embed(words)
        for block in self.blocks:
            values = block(values, self.cos, self.sin)
        return self.norm(values) @ self.embed.weight.T


def make_model(case: Case) -> nn.Module:
    """The model of a case."""
    if case.kind == "gpt":
        return Gpt(case)
    if case.kind == "cnn":
        return Cnn(case)
    if case.kind == "transformer":
        return Transformer(case)
    sizes = [math.prod(case.shape), *case.widths]
    parts: list[nn.Module] = [nn.Flatten()]
    for size, width in zip(sizes, case.widths, strict=False):
        parts += [nn.Linear(size, width), nn.ReLU(), nn.Dropout(case.dropout)]
    return nn.Sequential(*parts, nn.Linear(sizes[-1], case.num_outputs))


class Contestant:
    """A plain training loop over data in memory."""

    slots = 1

    def __init__(self, case: Case, batch_size: int, compiled: bool = False) -> None:
        torch.manual_seed(0)
        words = case.words
        shape = (case.num_examples, *case.shape)
        self.inputs = torch.randint(0, 256, shape, dtype=torch.int32 if words else torch.uint8)
        labels = torch.randint(0, 10, (case.num_examples,))
        self.labels = torch.roll(self.inputs, -1, 1).long() if words else labels
        self.words, self.batch_size = words, batch_size
        model = make_model(case).train()
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, nesterov=True)

        def loss_of(inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            logits = model(inputs)
            return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))

        self.loss_of: Any = torch.compile(loss_of) if compiled else loss_of
        self.order, self.place = torch.randperm(case.num_examples), 0
        self.advance(3)

    def advance(self, steps: int) -> None:
        for _ in range(steps):
            if self.place + self.batch_size > len(self.order):
                self.order, self.place = torch.randperm(len(self.order)), 0
            chosen = self.order[self.place : self.place + self.batch_size]
            self.place += self.batch_size
            inputs = self.inputs[chosen]
            inputs = inputs.long() if self.words else inputs.float() / 255
            self.optimizer.zero_grad(set_to_none=True)
            self.loss_of(inputs, self.labels[chosen]).backward()
            self.optimizer.step()


if __name__ == "__main__":
    os.sched_setaffinity(0, {int(sys.argv[1])})
    torch.set_num_threads(1)
    serve(Contestant)
