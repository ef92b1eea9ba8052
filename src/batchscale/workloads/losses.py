"""The training losses, as sums over a batch with the weight to divide by."""

import jax
import jax.numpy as jnp
import optax

from batchscale.noisy_quadratic import NoisyQuadratic
from batchscale.workloads.workload import Batch, Loss, LossSum, Metaparameters


def softmax_cross_entropy(logits: jax.Array, labels: jax.Array, smoothing: jax.Array | None = None) -> jax.Array:
    """Return the cross entropy of integer labels, one value per label, in nats.

    With smoothing ``s`` over ``K`` classes the target probabilities are ``(1 - s)·onehot + s/K``.

    >>> float(softmax_cross_entropy(jnp.zeros((1, 4)), jnp.array([2]))[0])  # log 4
    1.3862943...
    """
    logits = logits.astype(jnp.float32)
    logits -= jax.lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))
    # a comparison with every class fuses with what is around it; reading by index, and adding by index to the
    # gradient, are programs of their own
    is_label = labels[..., None] == jnp.arange(logits.shape[-1])
    errors = jnp.log(jnp.sum(jnp.exp(logits), axis=-1)) - jnp.sum(jnp.where(is_label, logits, 0.0), axis=-1)
    if smoothing is None:
        return errors
    uniform = jax.nn.logsumexp(logits, axis=-1) - jnp.mean(logits, axis=-1)
    return (1 - smoothing) * errors + smoothing * uniform


def sigmoid_cross_entropy(logits: jax.Array, labels: jax.Array, smoothing: jax.Array | None = None) -> jax.Array:
    """Return the cross entropy of 0/1 labels, summed over the classes of each example, in nats.

    With smoothing ``s`` the target probabilities are ``(1 - s)·label + s/2``.
    """
    targets = labels.astype(jnp.float32)
    if smoothing is not None:
        targets = (1 - smoothing) * targets + smoothing / 2
    return jnp.sum(optax.sigmoid_binary_cross_entropy(logits.astype(jnp.float32), targets), axis=-1)


def classification_loss(outputs: jax.Array, batch: Batch, values: Metaparameters) -> LossSum:
    """Return softmax cross entropy over the examples, smoothed by the metaparameter ``label_smoothing``."""
    return sum_over_examples(softmax_cross_entropy(outputs, batch["labels"], values.get("label_smoothing")), batch)


def multilabel_loss(outputs: jax.Array, batch: Batch, values: Metaparameters) -> LossSum:
    """Return sigmoid cross entropy over the examples, smoothed by the metaparameter ``label_smoothing``."""
    return sum_over_examples(sigmoid_cross_entropy(outputs, batch["labels"], values.get("label_smoothing")), batch)


def language_loss(outputs: jax.Array, batch: Batch, values: Metaparameters) -> LossSum:
    """Return softmax cross entropy over the real tokens; the weight is their number."""
    return sum_over_examples(softmax_cross_entropy(outputs, batch["labels"], values.get("label_smoothing")), batch)


def squared_error(outputs: jax.Array, targets: jax.Array) -> jax.Array:
    """Return the squared error of each example, as the mean over its outputs.

    >>> float(squared_error(jnp.array([[1.0, 2.0]]), jnp.array([[0.0, 5.0]]))[0])  # (1 + 9) / 2
    5.0
    """
    return jnp.mean(jnp.square(outputs.astype(jnp.float32) - targets.astype(jnp.float32)), axis=-1)


def regression_loss(outputs: jax.Array, batch: Batch, values: Metaparameters) -> LossSum:
    """Return the squared error over the examples."""
    del values
    return sum_over_examples(squared_error(outputs, batch["labels"]), batch)


def sum_over_examples(errors: jax.Array, batch: Batch) -> LossSum:
    """Return the sum of a loss over a batch, weighted by its mask if it has one."""
    if "mask" not in batch:
        return LossSum(jnp.sum(errors), jnp.asarray(errors.size, jnp.float32))
    mask = batch["mask"].astype(jnp.float32)
    return LossSum(jnp.sum(errors * mask), jnp.sum(mask))


def quadratic_loss(problem: NoisyQuadratic) -> Loss:
    """Return the loss whose gradient is ``h·θ`` plus the noise of the batch, weighted by the examples it stands for."""

    def loss(outputs: jax.Array, batch: Batch, values: Metaparameters) -> LossSum:
        del values
        means = exact_quadratic(outputs, problem) + jnp.sum(outputs * batch["inputs"], axis=-1)
        weights = batch["num_examples"]
        return LossSum(jnp.sum(weights * means), jnp.sum(weights))

    return loss


def exact_quadratic(outputs: jax.Array, problem: NoisyQuadratic) -> jax.Array:
    """Return ``½ Σ h θ²`` for each row of parameters."""
    return 0.5 * jnp.sum(jnp.asarray(problem.curvatures, jnp.float32) * jnp.square(outputs), axis=-1)
