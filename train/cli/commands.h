// The commands of the program. Each add_… function declares a subcommand with its options on `app` and sets `action` when that
// subcommand was chosen; main() runs it after parsing. Errors travel as gau::Error.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace gau::cli {

/// Does the command's work and returns the exit code.
using Action = std::function<int()>;

void add_prepare(CLI::App& app, Action& action);
void add_train(CLI::App& app, Action& action);
void add_eval(CLI::App& app, Action& action);
void add_inspect(CLI::App& app, Action& action);
void add_calibrate(CLI::App& app, Action& action);
void add_predict(CLI::App& app, Action& action);
void add_fill(CLI::App& app, Action& action);
void add_info(CLI::App& app, Action& action);
void add_export(CLI::App& app, Action& action);
void add_import(CLI::App& app, Action& action);
void add_verify(CLI::App& app, Action& action);
void add_gradcheck(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);

/// Runs the program: parses, executes, prints one line for an error, returns the exit code.
int run(int argc, const char* const* argv);

}  // namespace gau::cli
