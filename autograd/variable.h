// Variable: a tensor in a graph of operations, and backward over that graph.
//
// Dynamic: an op computes its value at once and records how its gradient is computed. Nodes are numbered as they are made;
// backward visits them from the newest to the oldest out of a heap, without recursion, and frees what a node saved as soon as
// it has been used. No in-place operations, no second derivatives.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "framework/tensor.h"

namespace gau {

/// What backward wants of one input of an op.
struct Wanted {
  bool gradient = false;
  /// Of a leaf whose gradient lives in a flat buffer: an op may add into it and return nothing for this input, which saves a
  /// tensor and a pass over it. Undefined: the gradient is to be returned.
  Tensor buffer;
  /// Whether the buffer holds a gradient to add to; else what is in it is to be overwritten, all of it. An op that uses the
  /// buffer asks once, and from then on it does.
  bool begun() const { return !std::exchange(*blank, false); }
  bool* blank = nullptr;

  explicit operator bool() const { return gradient; }
};

/// Gradients of an op's inputs from those of its outputs. `grads` has one entry an output, undefined where no gradient reached
/// it. `wanted[i]` tells whether input i wants one; entries that are not wanted may stay undefined, as may zero ones. The
/// closure captures tensors, never variables. A returned tensor belongs to the caller: it must not share storage with `grads`
/// unless it is handed back whole and unchanged.
using BackwardFunction = std::function<std::vector<Tensor>(std::span<const Tensor> grads, std::span<const Wanted> wanted)>;

struct Node;

/// What backward tells while it runs; either may be empty.
struct BackwardHooks {
  std::function<void()> after_op;  ///< after each node: communication makes progress there
  /// The gradient buffer of a leaf that no node still to come adds to: it can be sent while backward goes on, and is settled.
  /// Told once for each leaf with a buffer, at the latest when backward is through.
  std::function<void(const Tensor& gradient)> leaf_done;
};

class Variable {
 public:
  /// Undefined: stands for "absent" in optional inputs.
  Variable() = default;
  /// A leaf. With `requires_grad`, backward adds into grad().
  explicit Variable(Tensor value, bool requires_grad = false);
  /// A leaf whose gradient is accumulated into `grad` (a segment of a flat buffer, zeroed by its owner).
  Variable(Tensor value, Tensor grad);

  bool defined() const { return state_ != nullptr; }
  const Tensor& value() const;
  const Shape& shape() const { return value().shape(); }
  std::int64_t dim(int axis) const { return value().dim(axis); }
  DType dtype() const { return value().dtype(); }
  bool requires_grad() const;
  /// The gradient that backward left here; undefined before (for leaves without a buffer of their own).
  const Tensor& grad() const;
  void clear_grad();
  /// Of a leaf with a buffer: gradients go into `buffer` from now on, the first one in place of what is there.
  void restart_grad(Tensor buffer);
  /// Fills that buffer with 0 when no gradient has come since.
  void settle_grad();

 private:
  friend std::vector<Variable> record(const char*, std::vector<Tensor>, std::vector<Variable>, BackwardFunction);
  friend void backward(const Variable&, const BackwardHooks&);
  friend struct Node;
  struct State;
  class OpenLeaves;
  std::shared_ptr<State> state_;
};

/// Makes the outputs of an op. The graph is extended only when some input requires a gradient and no NoGrad scope is open.
std::vector<Variable> record(const char* op, std::vector<Tensor> values, std::vector<Variable> inputs,
                             BackwardFunction backward);
/// The same for an op with one output.
Variable record(const char* op, Tensor value, std::vector<Variable> inputs, BackwardFunction backward);

/// Adds d root / d leaf into every leaf's gradient. `root` has one element.
void backward(const Variable& root, const BackwardHooks& hooks = {});

/// While one lives, record() builds no graph in this thread.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};
bool grad_enabled();

}  // namespace gau
