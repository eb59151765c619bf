#include "train/cli/ranks.h"

#include "framework/last_words.h"
#include "framework/log.h"

namespace gau::cli {
namespace {

std::unique_ptr<Communicator>& started() {
  static std::unique_ptr<Communicator> instance;
  return instance;
}

}  // namespace

Communicator& ranks() {
  if (!started()) {
    started() = start_ranks();
    log::set_origin(rank_prefix());
    if (several_ranks()) promise_last_words(started()->describe(started()->rank()));
  }
  if (started()->rank() > 0) log::set_quiet(true);
  return *started();
}

bool several_ranks() { return started() && started()->size() > 1; }

std::string rank_prefix() { return several_ranks() ? started()->describe(started()->rank()) + ": " : ""; }

void finish_ranks() {
  if (started()) started()->finish();
  forget_last_words();
}

}  // namespace gau::cli
