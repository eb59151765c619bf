// HDF5 wrapper: what is written comes back, damage and misuse are refused by name, a failed write leaves nothing behind.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>

#include "framework/atomic_file.h"
#include "framework/digest.h"
#include "framework/error.h"
#include "framework/hdf5_file.h"

namespace gau {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_bytes(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

/// Runs `work`, expects an Error of `code`, returns its text.
std::string error_of(ExitCode code, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

class Hdf5 : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = fs::temp_directory_path() / ("gau-hdf5-" + std::to_string(getpid()));
    fs::create_directories(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }
  std::string path(const std::string& name) const { return (directory_ / name).string(); }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(directory_), fs::directory_iterator()));
  }

  std::uint64_t write_sample(const std::string& name) const {
    h5::Writer writer(path(name));
    std::vector<float> values(600);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) * 0.5F;
    writer.write<float>("/parameters/a.weight", values, {20, 30});
    writer.write_strings("/vocab", {"[PAD]", "", "end ", "a\0b"s, "\0"s, "für"});
    writer.create_growing<std::uint16_t>("/tokens");
    writer.append<std::uint16_t>("/tokens", std::vector<std::uint16_t>{1, 2, 65535});
    writer.append<std::uint16_t>("/tokens", std::vector<std::uint16_t>(100000, 7));
    writer.attribute("/", "kind", std::string("sample"));
    writer.attribute("/", "empty", std::string());
    writer.attribute("/parameters", "layers", std::int64_t{-3});
    writer.attribute("/made/for/attributes", "scale", 0.25);
    return writer.publish();
  }

  fs::path directory_;
};

TEST_F(Hdf5, WhatIsWrittenComesBack) {
  const std::uint64_t digest = write_sample("a.h5");
  const h5::Reader reader(path("a.h5"));
  EXPECT_TRUE(reader.sealed());
  EXPECT_EQ(reader.digest(), digest);
  const auto info = reader.info("/parameters/a.weight");
  EXPECT_EQ(info.shape, (std::vector<std::int64_t>{20, 30}));
  EXPECT_EQ(info.kind, h5::Kind::kReal);
  EXPECT_EQ(info.element_bytes, 4U);
  EXPECT_EQ(reader.read<float>("/parameters/a.weight")[599], 299.5F);
  EXPECT_EQ(reader.read<double>("/parameters/a.weight")[3], 1.5);
  EXPECT_EQ(reader.read_strings("/vocab"), (std::vector<std::string>{"[PAD]", "", "end ", "a\0b"s, "\0"s, "für"}));
  EXPECT_EQ(reader.info("/tokens").size(), 100003);
  EXPECT_EQ(reader.read_range<std::int32_t>("/tokens", 1, 3), (std::vector<std::int32_t>{2, 65535, 7}));
  EXPECT_EQ(reader.string_attribute("/", "kind"), "sample");
  EXPECT_EQ(reader.string_attribute("/", "empty"), "");
  EXPECT_EQ(reader.int_attribute("/parameters", "layers"), -3);
  EXPECT_EQ(reader.real_attribute("/made/for/attributes", "scale"), 0.25);
  EXPECT_TRUE(reader.has("/parameters/a.weight"));
  EXPECT_FALSE(reader.has("/none/a.weight"));
  EXPECT_EQ(reader.list("/"), (std::vector<std::string>{"made", "parameters", "tokens", "vocab", "vocab.lengths"}));
  EXPECT_TRUE(reader.has_attribute("/", "kind"));
  EXPECT_FALSE(reader.has_attribute("/", "other"));
  EXPECT_EQ(files(), 1U);
}

TEST_F(Hdf5, EqualContentsAreEqualBytes) {
  EXPECT_EQ(write_sample("a.h5"), write_sample("b.h5"));
  EXPECT_EQ(read_bytes(path("a.h5")), read_bytes(path("b.h5")));
}

TEST_F(Hdf5, EmptyAndCompressedDatasets) {
  h5::Writer writer(path("a.h5"));
  writer.write<std::int64_t>("/empty", {}, {0});
  writer.write<std::int64_t>("/none", {}, {0}, {.compress = true});
  writer.write_strings("/no_strings", {});
  writer.create_growing<std::int32_t>("/growing");
  std::vector<std::uint32_t> values(200000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint32_t>(i * i);
  writer.write<std::uint32_t>("/packed", values, {200000}, {.compress = true});
  writer.publish();
  const h5::Reader reader(path("a.h5"));
  EXPECT_TRUE(reader.read<std::int64_t>("/empty").empty());
  EXPECT_TRUE(reader.read<std::int64_t>("/none").empty());
  EXPECT_TRUE(reader.read_strings("/no_strings").empty());
  EXPECT_TRUE(reader.read<std::int32_t>("/growing").empty());
  EXPECT_EQ(reader.read<std::uint32_t>("/packed"), values);
}

TEST_F(Hdf5, EveryMutantIsRefused) {
  write_sample("a.h5");
  const std::string whole = read_bytes(path("a.h5"));
  std::mt19937 random(1);
  const auto below = [&random](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
  for (int i = 0; i < 400; ++i) {
    std::string bytes = whole;
    // Half of the hits fall into the user block, which is small.
    const std::size_t at = i % 2 == 0 ? below(4096) : below(bytes.size());
    switch (i % 8) {
      case 0:
        bytes.resize(at);
        break;
      case 1:
        bytes.insert(at, 1, static_cast<char>(below(256)));
        break;
      case 2:
        bytes.erase(at, 1);
        break;
      case 3:
        bytes.append(below(100) + 1, '\0');
        break;
      default:
        bytes[at] = static_cast<char>(bytes[at] ^ static_cast<char>(1U << below(8)));
    }
    write_bytes(path("mutant.h5"), bytes);
    EXPECT_THAT(error_of(ExitCode::kData, [&] { h5::Reader reader(path("mutant.h5")); }), HasSubstr("mutant.h5: ")) << i;
  }
}

TEST_F(Hdf5, DamageIsNamed) {
  write_sample("a.h5");
  std::string bytes = read_bytes(path("a.h5"));
  write_bytes(path("cut.h5"), bytes.substr(0, bytes.size() / 2));
  EXPECT_THAT(error_of(ExitCode::kData, [&] { h5::Reader reader(path("cut.h5")); }), HasSubstr("cut.h5: cut short"));
  bytes[5000] = static_cast<char>(bytes[5000] + 1);
  write_bytes(path("bad.h5"), bytes);
  EXPECT_THAT(error_of(ExitCode::kData, [&] { h5::Reader reader(path("bad.h5")); }),
              HasSubstr("bad.h5: damaged: its digest differs"));
  write_bytes(path("text.h5"), "not HDF5 at all\n");
  EXPECT_THAT(error_of(ExitCode::kData, [&] { h5::Reader reader(path("text.h5")); }), HasSubstr("not an HDF5 file"));
  write_bytes(path("nothing.h5"), "");
  EXPECT_THAT(error_of(ExitCode::kData, [&] { h5::Reader reader(path("nothing.h5")); }), HasSubstr("not an HDF5 file"));
  EXPECT_THAT(error_of(ExitCode::kIo, [&] { h5::Reader reader(path("absent.h5")); }), HasSubstr("No such file"));
  EXPECT_THAT(error_of(ExitCode::kIo, [&] { h5::Reader reader(directory_.string()); }), HasSubstr("not a regular file"));
  ASSERT_EQ(mkfifo(path("pipe.h5").c_str(), 0600), 0);
  EXPECT_THAT(error_of(ExitCode::kIo, [&] { h5::Reader reader(path("pipe.h5")); }), HasSubstr("not a regular file"));
}

/// A file as another program would make it: no user block, variable strings, types of its own.
void write_foreign(const std::string& path) {
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hsize_t two = 2;
  const hid_t space = H5Screate_simple(1, &two, nullptr);
  const hid_t text = H5Tcopy(H5T_C_S1);
  H5Tset_size(text, H5T_VARIABLE);
  const hid_t names = H5Dcreate2(file, "names", text, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  const char* values[] = {"one", "two "};
  H5Dwrite(names, text, H5S_ALL, H5S_ALL, H5P_DEFAULT, static_cast<const void*>(values));
  const hid_t numbers = H5Dcreate2(file, "numbers", H5T_STD_I64BE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  const std::int64_t big[] = {-1, 70000};
  H5Dwrite(numbers, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, big);
  H5Dclose(names);
  H5Dclose(numbers);
  H5Tclose(text);
  H5Sclose(space);
  H5Fclose(file);
}

TEST_F(Hdf5, ForeignFilesOpenAndAreCheckedByType) {
  write_foreign(path("f.h5"));
  const h5::Reader reader(path("f.h5"));
  EXPECT_FALSE(reader.sealed());
  EXPECT_EQ(reader.read_strings("names"), (std::vector<std::string>{"one", "two "}));
  EXPECT_EQ(reader.read<std::int32_t>("numbers"), (std::vector<std::int32_t>{-1, 70000}));
  EXPECT_THAT(error_of(ExitCode::kData, [&] { reader.read<std::uint16_t>("numbers"); }),
              AllOf(HasSubstr("\"numbers\""), HasSubstr("does not fit unsigned 16 bits")));
  EXPECT_THAT(error_of(ExitCode::kData, [&] { reader.read<std::uint64_t>("numbers"); }), HasSubstr("does not fit"));
  EXPECT_THAT(error_of(ExitCode::kData, [&] { reader.read<float>("numbers"); }),
              HasSubstr("holds integers, wanted are real numbers"));
  EXPECT_THAT(error_of(ExitCode::kData, [&] { reader.read_strings("numbers"); }), HasSubstr("wanted is a list of strings"));
  EXPECT_THAT(error_of(ExitCode::kData, [&] { reader.read<float>("/no/such"); }), HasSubstr("no object \"/no/such\""));
  EXPECT_THAT(error_of(ExitCode::kData, [&] { reader.read_range<std::int32_t>("numbers", 1, 2); }),
              HasSubstr("has 2 elements"));
  EXPECT_THAT(error_of(ExitCode::kData, [&] { reader.string_attribute("/", "kind"); }), HasSubstr("no attribute \"kind\""));
  const std::string bytes = read_bytes(path("f.h5"));
  write_bytes(path("cut.h5"), bytes.substr(0, bytes.size() / 2));
  EXPECT_THAT(error_of(ExitCode::kData, [&] { h5::Reader cut(path("cut.h5")); }), HasSubstr("cut.h5: HDF5 cannot open it"));
}

TEST_F(Hdf5, LockedFileNamesTheVariable) {
  const char* locking = std::getenv("HDF5_USE_FILE_LOCKING");
  if (locking != nullptr) GTEST_SKIP() << "HDF5_USE_FILE_LOCKING is set";
  write_sample("a.h5");
  const int holder = open(path("a.h5").c_str(), O_RDONLY);
  ASSERT_EQ(flock(holder, LOCK_EX | LOCK_NB), 0);
  EXPECT_THAT(error_of(ExitCode::kIo, [&] { h5::Reader reader(path("a.h5")); }),
              AllOf(HasSubstr("a.h5: cannot be locked"), HasSubstr("HDF5_USE_FILE_LOCKING")));
  close(holder);
  const h5::Reader first(path("a.h5"));
  const h5::Reader second(path("a.h5"));
  EXPECT_EQ(first.digest(), second.digest());
}

TEST_F(Hdf5, UnpublishedWriterLeavesNothing) {
  {
    h5::Writer writer(path("a.h5"));
    writer.write<float>("/x", std::vector<float>{1}, {1});
    EXPECT_EQ(files(), 1U);
    EXPECT_FALSE(fs::exists(path("a.h5")));
  }
  EXPECT_EQ(files(), 0U);
}

TEST_F(Hdf5, WritesThatCannotWorkAreRefused) {
  EXPECT_THAT(error_of(ExitCode::kIo, [&] { h5::Writer writer(path("none/a.h5")); }), HasSubstr("No such file"));
  EXPECT_THAT(error_of(ExitCode::kIo, [&] { h5::Writer writer("/dev/full"); }), HasSubstr("not a regular file"));
  EXPECT_THAT(error_of(ExitCode::kIo, [&] { h5::Writer writer(directory_.string()); }), HasSubstr("not a regular file"));
  h5::Writer writer(path("a.h5"));
  EXPECT_THAT(error_of(ExitCode::kIo,
                       [&] {
                         writer.write<float>("/x", std::vector<float>{1, 2}, {3});
                       }),
              HasSubstr("2 values"));
  EXPECT_THAT(error_of(ExitCode::kIo, [&] { writer.append<float>("/x", std::vector<float>{1}); }),
              HasSubstr("not created as growing"));
  EXPECT_THAT(error_of(ExitCode::kIo, [&] { writer.attribute("/", "big", std::string(70000, 'x')); }),
              HasSubstr("70000 bytes"));
}

/// In a child process, since a failed write leaves libhdf5 in a poor state: 0 = refused as it should be, else what went wrong.
int write_under_limit(const std::string& path, rlim_t limit, const std::function<void()>& write) {
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{limit, limit};
  setrlimit(RLIMIT_FSIZE, &small);
  try {
    write();
  } catch (const Error& error) {
    const std::string text = error.what();
    if (error.code() != ExitCode::kIo) return 1;
    return text.find(path) != std::string::npos && text.find("File too large") != std::string::npos ? 0 : 2;
  }
  return 3;
}

TEST_F(Hdf5, FullDiskLeavesTheOldFileAndNamesTheReason) {
  write_sample("a.h5");
  const std::string old = read_bytes(path("a.h5"));
  for (rlim_t limit = 0; limit < old.size(); limit += old.size() / 40) {
    const pid_t child = fork();
    if (child == 0) _exit(write_under_limit(path("a.h5"), limit, [&] { write_sample("a.h5"); }));
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status)) << limit;
    EXPECT_EQ(WEXITSTATUS(status), 0) << limit;
    EXPECT_EQ(read_bytes(path("a.h5")), old) << limit;
    EXPECT_EQ(files(), 1U) << limit;
  }
}

TEST_F(Hdf5, OtherToolsReadOurFiles) {
  if (std::system("h5dump --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no h5dump here";
  write_sample("a.h5");
  const std::string command = "h5dump -d /vocab '" + path("a.h5") + "' > '" + path("dump") + "' 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_THAT(read_bytes(path("dump")), HasSubstr("\"[PAD]\""));
}

TEST_F(Hdf5, AtomicFileReplacesAndCleansUp) {
  write_file(path("t"), "first");
  write_file(path("t"), "second");
  EXPECT_EQ(read_bytes(path("t")), "second");
  fs::create_symlink(path("t"), path("link"));
  write_file(path("link"), "third");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(read_bytes(path("t")), "third");
  // The leavings of a killed writer go with the next write.
  const pid_t child = fork();
  if (child == 0) {
    const TemporaryFile abandoned(path("t"));
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  EXPECT_EQ(files(), 3U);
  write_file(path("t"), "fourth");
  EXPECT_EQ(files(), 2U);
}

TEST_F(Hdf5, ADirectoryIsThereWholeOrNotAtAll) {
  const std::string target = path("made");
  const auto make = [&](const std::string& text, bool replace) {
    TemporaryDirectory directory(target + "/");
    write_bytes(directory.name() + "/t", text);
    directory.publish(replace);
  };
  { const TemporaryDirectory unpublished(target); }
  EXPECT_EQ(files(), 0U);
  make("first", false);
  EXPECT_THAT(error_of(ExitCode::kIo, [&] { make("second", false); }), HasSubstr("made: cannot be replaced"));
  EXPECT_EQ(read_bytes(target + "/t"), "first");
  make("third", true);
  EXPECT_EQ(read_bytes(target + "/t"), "third");
  EXPECT_EQ(files(), 1U);
  // The leavings of a killed writer go with the next one.
  const pid_t child = fork();
  if (child == 0) {
    const TemporaryDirectory abandoned(target);
    write_bytes(abandoned.name() + "/t", "half");
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  EXPECT_EQ(files(), 2U);
  make("fourth", true);
  EXPECT_EQ(files(), 1U);
  write_bytes(path("file"), "x");
  EXPECT_THAT(error_of(ExitCode::kIo, [&] { TemporaryDirectory directory(path("file")); }), HasSubstr("not a directory"));
  EXPECT_THAT(error_of(ExitCode::kIo, [&] { TemporaryDirectory directory(path("none/made")); }), HasSubstr("No such file"));
}

TEST(Digest, KnownValuesAndPieces) {
  // The reference implementation's value for no bytes with seed 0.
  EXPECT_EQ(xxh64("", 0), 0xef46db3751d8e999ULL);
  const std::string text(1000, 'x');
  Digest digest;
  digest.update(text.data(), 333);
  digest.update(text.data() + 333, 667);
  EXPECT_EQ(digest.value(), xxh64(text.data(), text.size()));
  EXPECT_EQ(digest_text(0xabcULL), "0000000000000abc");
}

}  // namespace
}  // namespace gau
