// What is read where a file belongs, and what is refused without waiting: a test that waits is ended by an alarm.
#include "framework/read_file.h"

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <thread>

#include "tests/errors.h"

namespace gau {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class ReadFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "gau-read-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
    alarm(20);
  }
  void TearDown() override {
    alarm(0);
    fs::remove_all(directory_);
  }
  std::string path(const std::string& name) const { return (directory_ / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }
  std::string pipe() const {
    EXPECT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
    return path("pipe");
  }
  std::string socket_file() const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path("socket").c_str(), sizeof address.sun_path - 1);
    const int id = socket(AF_UNIX, SOCK_STREAM, 0);
    EXPECT_EQ(bind(id, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    close(id);
    return path("socket");
  }

  fs::path directory_;
};

TEST_F(ReadFile, GivesAllBytes) {
  EXPECT_EQ(read_file(write("empty", ""), "a text"), "");
  const std::string text = std::string("a\0\r\n", 4) + std::string(200000, 'x') + "\n";
  EXPECT_EQ(read_file(write("long", text), "a text"), text);
  EXPECT_FALSE(read_file("/proc/self/status", "a text").empty());  // of no size, as the system tells it
}

TEST_F(ReadFile, MissingIsTheReasonOfTheSystem) {
  const std::string absent = path("absent");
  for (const Error& error :
       {error_of([&] { read_file(absent, "a manifest"); }), error_of([&] { open_file(absent, "a manifest"); })}) {
    EXPECT_EQ(error.code(), ExitCode::kIo);
    EXPECT_EQ(error.what(), absent + ": cannot be opened as a manifest: No such file or directory");
  }
}

TEST_F(ReadFile, WhatIsNoFileIsRefusedAtOnce) {
  const std::pair<std::string, const char*> others[] = {
      {pipe(), "a pipe"}, {directory_.string(), "a directory"}, {socket_file(), "a socket"}, {"/dev/zero", "a device"}};
  for (const auto& [other, kind] : others) {
    for (const Error& error :
         {error_of([&] { read_file(other, "a manifest"); }), error_of([&] { open_file(other, "a manifest"); })}) {
      EXPECT_EQ(error.code(), ExitCode::kData) << kind;
      EXPECT_THAT(error.what(), AllOf(HasSubstr(other), HasSubstr("is no regular file but " + std::string(kind))));
    }
  }
}

TEST_F(ReadFile, PipesAndDevicesAreReadWhereAsked) {
  const std::string name = pipe();
  const auto read_stream = [](const std::string& from) {
    return read_file(from, "a text", kMostTextBytes, FileSource::kFileOrStream);
  };
  std::thread writer([&] { std::ofstream(name) << std::string(100000, 'y'); });
  EXPECT_EQ(read_stream(name), std::string(100000, 'y'));
  writer.join();
  EXPECT_EQ(read_stream("/dev/null"), "");
  EXPECT_EQ(error_of([&] { read_stream(directory_.string()); }).code(), ExitCode::kData);
  EXPECT_EQ(error_of([&] { read_stream(socket_file()); }).code(), ExitCode::kData);
}

TEST_F(ReadFile, TooLargeIsRefused) {
  const std::string exact = write("exact", "12345678");
  EXPECT_EQ(read_file(exact, "a text", 8), "12345678");
  const Error large = error_of([&] { read_file(exact, "a text", 7); });
  EXPECT_EQ(large.code(), ExitCode::kData);
  EXPECT_THAT(large.what(), HasSubstr(exact + ": has more than 7 bytes, the most that are read as a text"));
  // Without its memory: more than there is.
  const std::string hole = write("hole", "");
  fs::resize_file(hole, std::uintmax_t{1} << 42);
  EXPECT_EQ(error_of([&] { read_file(hole, "a text"); }).code(), ExitCode::kData);
  // What has no end is left at the limit.
  EXPECT_EQ(error_of([&] { read_file("/dev/zero", "a text", 1 << 20, FileSource::kFileOrStream); }).code(), ExitCode::kData);
}

TEST_F(ReadFile, ErrorsOfReadingAreErrors) {
  // Its first page cannot be read by anybody.
  const Error error = error_of([&] { read_file("/proc/self/mem", "a text"); });
  EXPECT_EQ(error.code(), ExitCode::kIo);
  EXPECT_THAT(error.what(), HasSubstr("cannot be read: Input/output error"));
}

}  // namespace
}  // namespace gau
