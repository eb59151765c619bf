#include "train/launch/mpich_report.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "framework/error.h"

namespace gau::launch {
namespace {

constexpr std::string_view kBegin = "gau-launch: rank ";
constexpr std::string_view kCode = ") ended with ";

// What says most about why the job ended.
int weight(int code) {
  if (code >= 128) return 1;
  return code == static_cast<int>(ExitCode::kPeerLost) ? 2 : 3;
}

}  // namespace

std::string end_of_rank(std::string_view rank, std::string_view host, int code) {
  return fmt::format("{}{} ({}{}{}", kBegin, rank, host, kCode, code);
}

bool is_of_hydra(std::string_view line) {
  constexpr std::array<std::string_view, 5> kBeginnings{
      "==================", "=   ", "YOUR APPLICATION TERMINATED WITH THE EXIT STRING",
      "This typically refers to a problem with your application", "Please see the FAQ page for debugging suggestions"};
  return std::any_of(kBeginnings.begin(), kBeginnings.end(), [&](std::string_view text) { return line.starts_with(text); });
}

void RankEnds::take(std::string_view line) {
  const std::size_t at = line.rfind(kCode);
  if (!line.starts_with(kBegin) || at == std::string_view::npos) return;
  int code = 0;
  std::from_chars(line.data() + at + kCode.size(), line.data() + line.size(), code);
  if (code != 0 && (!code_ || weight(code) > weight(*code_))) code_ = code;
}

}  // namespace gau::launch
