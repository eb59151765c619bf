// gau gradcheck: finite differences for every op and for whole models, in double.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "autograd/op_cases.h"
#include "framework/backend.h"
#include "framework/error.h"
#include "framework/log.h"
#include "layers/model_check.h"
#include "train/cli/commands.h"

namespace gau::cli {

namespace {

constexpr double kTolerance = 1e-6;

struct Row {
  std::string name;
  GradCheckResult result;
};

int report(const std::vector<Row>& rows, bool json) {
  const bool passed = std::all_of(rows.begin(), rows.end(), [](const Row& row) { return row.result.passed(kTolerance); });
  if (json) {
    nlohmann::ordered_json out{{"backend", backend().name()}, {"tolerance", kTolerance}, {"passed", passed}};
    for (const Row& row : rows) {
      out["results"].push_back({{"case", row.name},
                                {"error", row.result.error()},
                                {"largest", row.result.largest},
                                {"checked", row.result.checked},
                                {"passed", row.result.passed(kTolerance)}});
    }
    fmt::print("{}\n", out.dump());
  } else {
    fmt::print("{:<48} {:>12} {:>12} {:>9}\n", "case", "worst error", "largest", "elements");
    for (const Row& row : rows) {
      const char* verdict = row.result.passed(kTolerance) ? "" : row.result.vacuous() ? "  VACUOUS" : "  FAILED  ";
      fmt::print("{:<48} {:>12.2e} {:>12.2e} {:>9}{}{}\n", row.name, row.result.error(), row.result.largest, row.result.checked,
                 verdict, row.result.passed(kTolerance) ? "" : row.result.worst);
    }
  }
  const auto worst = std::max_element(rows.begin(), rows.end(),
                                      [](const Row& a, const Row& b) { return a.result.error() < b.result.error(); });
  if (!passed)
    fail(ExitCode::kNumeric, "gradcheck: the worst error, {:.2e} of \"{}\", is above {:.0e}", worst->result.error(),
         worst->name, kTolerance);
  log::info("gradcheck: {} cases on backend {}, worst error {:.2e} (\"{}\"), tolerance {:.0e}", rows.size(), backend().name(),
            worst->result.error(), worst->name, kTolerance);
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace

void add_gradcheck(CLI::App& app, Action& action) {
  struct Options {
    std::string backend = "cpu";
    bool json = false;
    bool quiet = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("gradcheck", "Compare every gradient with finite differences, in double");
  command->add_option("--backend", options->backend, "Backend to check: cpu")->capture_default_str();
  command->add_flag("--json", options->json, "One JSON object on standard output");
  command->add_flag("--quiet", options->quiet, "No progress lines");
  command->footer("Example:\n  gau gradcheck");
  command->callback([options, &action] {
    action = [options] {
      if (options->quiet) log::set_quiet(true);
      check(options->backend == backend().name(), ExitCode::kUsage,
            "gradcheck: backend \"{}\" is not in this build (known: {})", options->backend, backend().name());
      std::vector<Row> rows;
      for (const OpCase& op_case : op_cases()) {
        rows.push_back({op_case.name, check_case(op_case, op_case.fused)});
        if (op_case.composed) rows.push_back({op_case.name + " (composed)", check_case(op_case, op_case.composed)});
      }
      for (const ModelCase& model_case : model_cases()) rows.push_back({"model: " + model_case.name, check_model(model_case)});
      return report(rows, options->json);
    };
  });
}

}  // namespace gau::cli
