// The graph and backward over it.
#include "autograd/variable.h"

#include <queue>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "framework/error.h"
#include "framework/kernels.h"

namespace gau {

namespace {
thread_local bool grad_mode = true;
thread_local std::uint64_t next_sequence = 0;

// Sums gradients that arrive one by one. The first is kept as it came and may be shared with others, so the second makes a new
// tensor; only then is it ours to add into.
struct Accumulator {
  Tensor sum;
  bool owned = false;

  void add(const Tensor& gradient) {
    if (!sum.defined()) {
      sum = gradient;
    } else if (owned) {
      kernels::add(sum, gradient, sum);
    } else {
      Tensor both = Tensor::empty(sum.shape(), sum.dtype());
      kernels::add(sum, gradient.reshaped(sum.shape()), both);
      sum = both;
      owned = true;
    }
  }
};
}  // namespace

struct Variable::State {
  Tensor value;
  bool requires_grad = false;
  bool has_buffer = false;  // gradient lives in a segment of a flat buffer
  bool blank = false;       // what is there is of no account
  Tensor buffer;
  Accumulator gradient;            // of a leaf
  std::shared_ptr<Node> producer;  // null for leaves
  std::size_t output = 0;          // which of the producer's outputs this is

  void settle();
};

struct Node {
  const char* op;
  std::uint64_t sequence;
  std::vector<std::shared_ptr<Variable::State>> inputs;
  BackwardFunction backward;
  std::vector<Accumulator> gradients;  // one an output
  bool queued = false;

  // Runs the op's backward and hands each input its gradient; returns the producers that now have work.
  std::vector<Node*> run();
};

Variable::Variable(Tensor value, bool requires_grad) : state_(std::make_shared<State>()) {
  state_->value = std::move(value);
  state_->requires_grad = requires_grad;
}

Variable::Variable(Tensor value, Tensor grad) : Variable(std::move(value), true) {
  check(state_->value.shape() == grad.shape(), ExitCode::kData, "variable: value {} and gradient {} differ in shape",
        state_->value.shape().str(), grad.shape().str());
  state_->has_buffer = true;
  state_->buffer = std::move(grad);
}

const Tensor& Variable::value() const {
  check(defined(), ExitCode::kData, "variable: an absent variable has no value");
  return state_->value;
}

bool Variable::requires_grad() const { return defined() && state_->requires_grad; }

const Tensor& Variable::grad() const { return state_->has_buffer ? state_->buffer : state_->gradient.sum; }

void Variable::clear_grad() { state_->gradient = Accumulator{}; }

void Variable::restart_grad(Tensor buffer) {
  check(state_->has_buffer && state_->value.shape() == buffer.shape(), ExitCode::kData,
        "variable: a buffer {} does not suit a value {}, or the leaf has none", buffer.shape().str(),
        state_->value.shape().str());
  state_->buffer = std::move(buffer);
  state_->blank = true;
}

void Variable::State::settle() {
  if (std::exchange(blank, false)) kernels::fill(buffer, 0);
}

void Variable::settle_grad() { state_->settle(); }

std::vector<Variable> record(const char* op, std::vector<Tensor> values, std::vector<Variable> inputs,
                             BackwardFunction backward) {
  bool needed = false;
  for (const Variable& input : inputs) needed = needed || input.requires_grad();
  std::vector<Variable> outputs;
  outputs.reserve(values.size());
  if (!needed || !grad_mode) {
    for (Tensor& value : values) outputs.emplace_back(std::move(value));
    return outputs;
  }
  auto node = std::make_shared<Node>();
  node->op = op;
  node->sequence = next_sequence++;
  node->backward = std::move(backward);
  node->gradients.resize(values.size());
  for (const Variable& input : inputs) node->inputs.push_back(input.state_);
  for (std::size_t i = 0; i < values.size(); ++i) {
    Variable output(std::move(values[i]), true);
    output.state_->producer = node;
    output.state_->output = i;
    outputs.push_back(std::move(output));
  }
  return outputs;
}

Variable record(const char* op, Tensor value, std::vector<Variable> inputs, BackwardFunction backward) {
  std::vector<Tensor> values;
  values.push_back(std::move(value));
  return record(op, std::move(values), std::move(inputs), std::move(backward)).front();
}

std::vector<Node*> Node::run() {
  std::vector<Wanted> wanted(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i] || !inputs[i]->requires_grad) continue;
    wanted[i].gradient = true;
    if (!inputs[i]->has_buffer) continue;
    wanted[i].buffer = inputs[i]->buffer;
    wanted[i].blank = &inputs[i]->blank;
  }
  std::vector<Tensor> arrived;
  arrived.reserve(gradients.size());
  for (Accumulator& gradient : gradients) arrived.push_back(std::move(gradient.sum));
  std::vector<Tensor> results = backward(arrived, wanted);
  check(results.size() == inputs.size(), ExitCode::kData, "backward of {}: {} gradients for {} inputs", op, results.size(),
        inputs.size());

  std::vector<Node*> woken;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!wanted[i] || !results[i].defined()) continue;
    Variable::State& input = *inputs[i];
    check(results[i].size() == input.value.size(), ExitCode::kData, "backward of {}: gradient {} of input {} with shape {}", op,
          results[i].shape().str(), i, input.value.shape().str());
    if (input.producer) {
      input.producer->gradients[input.output].add(results[i]);
      if (!input.producer->queued) {
        input.producer->queued = true;
        woken.push_back(input.producer.get());
      }
    } else if (input.has_buffer) {
      const Tensor result = results[i].reshaped(input.buffer.shape());
      wanted[i].begun() ? kernels::add(input.buffer, result, input.buffer) : kernels::convert(result, input.buffer);
    } else {
      input.gradient.add(results[i]);
    }
  }
  return woken;
}

// How many inputs of the nodes below `root` each leaf with a buffer still is. A node that no gradient reaches never runs; its
// leaves keep a count above zero and are told at the end.
class Variable::OpenLeaves {
 public:
  OpenLeaves(const Node& root, const BackwardHooks& hooks) : hooks_(hooks) {
    if (!hooks_.leaf_done) return;
    std::vector<const Node*> stack{&root};
    std::unordered_set<const Node*> seen{&root};
    while (!stack.empty()) {
      const Node* const node = stack.back();
      stack.pop_back();
      for (const auto& input : node->inputs) {
        if (!input) continue;
        if (input->has_buffer) ++uses_[input.get()];
        if (input->producer && seen.insert(input->producer.get()).second) stack.push_back(input->producer.get());
      }
    }
  }

  // `node` has run.
  void close(const Node& node) {
    if (!hooks_.leaf_done) return;
    for (const auto& input : node.inputs) {
      if (!input || !input->has_buffer || --uses_.at(input.get()) > 0) continue;
      uses_.erase(input.get());
      tell(*input);
    }
  }

  void close_rest() {
    for (const auto& [leaf, uses] : uses_) tell(*leaf);
  }

 private:
  void tell(State& leaf) const {
    leaf.settle();
    hooks_.leaf_done(leaf.buffer);
  }

  const BackwardHooks& hooks_;
  std::unordered_map<State*, std::int64_t> uses_;
};

void backward(const Variable& root, const BackwardHooks& hooks) {
  check(root.defined() && root.value().size() == 1, ExitCode::kData, "backward: the root must have one element, not {}",
        root.defined() ? root.value().shape().str() : "none");
  std::shared_ptr<Node> first = root.state_->producer;
  if (!first) return;
  Tensor one = Tensor::empty(root.shape(), root.dtype());
  kernels::fill(one, 1.0);
  first->gradients[root.state_->output].add(one);

  // The newest node first: everything that reads a value was made after it, so its gradient is complete when it is reached.
  // Nodes are kept alive by those that read them, hence shared pointers here.
  auto older = [](const std::shared_ptr<Node>& a, const std::shared_ptr<Node>& b) { return a->sequence < b->sequence; };
  std::priority_queue<std::shared_ptr<Node>, std::vector<std::shared_ptr<Node>>, decltype(older)> heap(older);
  Variable::OpenLeaves open(*first, hooks);
  first->queued = true;
  heap.push(std::move(first));
  while (!heap.empty()) {
    std::shared_ptr<Node> node = heap.top();
    heap.pop();
    check(static_cast<bool>(node->backward), ExitCode::kData, "backward of {}: this graph was already walked", node->op);
    const std::vector<Node*> woken = node->run();
    for (Node* producer : woken) {
      for (const auto& input : node->inputs) {
        if (input && input->producer.get() == producer) {
          heap.push(input->producer);
          break;
        }
      }
    }
    open.close(*node);
    node->backward = nullptr;
    node->inputs.clear();
    if (hooks.after_op) hooks.after_op();
  }
  open.close_rest();
}

NoGrad::NoGrad() : before_(grad_mode) { grad_mode = false; }
NoGrad::~NoGrad() { grad_mode = before_; }
bool grad_enabled() { return grad_mode; }

}  // namespace gau
