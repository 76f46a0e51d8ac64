"""
Hypernymy regularization on logits of your own
==============================================

A child label should not be scored above its parent: a document on graph theory is one on
mathematics. The penalties of MATCH (equations 24 and 25, https://arxiv.org/abs/2102.07349) take
tensors, so that they fit behind any model that gives logits ``[documents, labels]``.
"""

# %%
# A hierarchy
# -----------
# ``edge_index`` holds "child is_a parent": row 0 the child, row 1 the parent. Labels may have
# several parents; a cycle is refused.

import matplotlib.pyplot as plt
import torch
from torch import nn

import match_graph as mg

num_labels = 31  # a binary tree
child = torch.arange(1, num_labels)
parent = (child - 1) // 2
hierarchy = mg.Hierarchy(torch.stack([child, parent]), num_labels)
print(f"{hierarchy.num_edges} edges in {hierarchy.num_layers} layers")

# %%
# Documents
# ---------
# A feature per label, with noise, and gold labels with all their ancestors. Gold labels are
# packed: those of document ``i`` are ``label_index[label_ptr[i]:label_ptr[i + 1]]``. Most of the
# labels that a document should have are missing, as they often are; what remains contradicts the
# hierarchy.

generator = torch.Generator().manual_seed(0)
num_documents = 256
gold = torch.zeros(num_documents, num_labels, dtype=torch.bool)
gold[torch.arange(num_documents), torch.randint(15, 31, (num_documents,), generator=generator)] = (
    True
)
for label in range(num_labels - 1, 0, -1):
    gold[:, (label - 1) // 2] |= gold[:, label]
noise = torch.randn(num_documents, num_labels, generator=generator)
features = gold.float() + 0.5 * noise
gold &= torch.rand(gold.shape, generator=generator) < 0.4
label_index = gold.nonzero()[:, 1]
label_ptr = nn.functional.pad(gold.sum(1).cumsum(0), (1, 0))

# %%
# Training
# --------
# ``sparse_bce`` needs no dense target; ``hypernymy_output_penalty`` is how far children are
# scored above their parents, in probability units, averaged over documents. Both have gradients.


def train(weight: float) -> list[float]:
    """The share of violated edges after each step, with a weight of the penalty."""
    torch.manual_seed(0)
    model = nn.Linear(num_labels, num_labels)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    rates = []
    for _ in range(80):
        logits = model(features)  # [documents, labels]
        loss = mg.sparse_bce(logits, label_ptr, label_index)
        loss = loss + weight * mg.hypernymy_output_penalty(logits, hierarchy)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meter = mg.ViolationMeter(hierarchy)
        meter.update(logits.detach())
        rates.append(meter.compute()["violation_rate"])
    return rates


# %%
# Without the penalty the model learns the contradictions; the larger its weight, the fewer
# remain.

figure, axes = plt.subplots(figsize=(5, 3), layout="constrained")
for weight in (0.0, 1.0, 10.0):
    rates = train(weight)
    axes.plot(rates, label=f"weight {weight:g}")
    print(f"weight {weight:g}: {rates[-1]:.1%} of the edges violated")
axes.set(xlabel="step", ylabel="violated edges", ylim=(0, None))
axes.legend()
plt.show()

# %%
# The parameters
# --------------
# The other penalty keeps the weights of a child near those of its parent: a row per label.

weight = torch.randn(num_labels, 8, requires_grad=True)
penalty = mg.hypernymy_parameter_penalty(weight, hierarchy)
penalty.backward()
print(f"penalty {penalty.item():.1f}, gradient {list(weight.grad.shape)}")
