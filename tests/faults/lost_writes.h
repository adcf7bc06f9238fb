// DiskModel: the possible contents of a disk after a power failure, from a trace of a program's
// calls (call_trace.h). Synced data is on the disk. Other data may be or not: contents and entries
// of directories do not wait for each other, and a write may be torn. It is the model of "All File
// Systems Are Not Created Equal" (Pillai et al., OSDI 2014), in which a file system promises no
// more than POSIX does, with one exception: entries of directories become durable in the order in
// which they were made, as with a journal.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace ferry {

class DiskModel {
 public:
  // Which unsynced data survives.
  enum class Luck {
    kNothing,
    kEntries,       // names, without contents
    kEntriesSizes,  // names and sizes
    kAll,
    kRandom,
  };
  // Path below the root -> contents. Paths of directories end with a slash.
  using Tree = std::map<std::string, std::string>;

  // `root` is the state in which the trace begins.
  explicit DiskModel(const std::string& root);
  void read_trace(const std::string& path);

  size_t operations() const { return operations_.size(); }
  // Returns the disk when the power fails before operation `at`.
  Tree tree(size_t at, Luck luck, std::mt19937& random) const;

 private:
  struct Node {
    bool directory = false;
    std::map<std::string, size_t> entries = {};  // name -> node
    std::string contents = {};
  };
  // An entry of a directory that is set, or removed where there is no node.
  struct Entry {
    size_t directory = 0;
    std::string name;
    std::optional<size_t> node;
  };
  struct Operation {
    enum class Kind { kEntries, kWrite, kTruncate, kSync } kind = Kind::kSync;
    size_t node = 0;  // the node of other kinds than kEntries
    uint64_t offset = 0;
    std::string data = {};
    std::vector<Entry> entries = {};  // entries that kEntries sets at once
    size_t synced_by = SIZE_MAX;      // index of the operation that makes this one durable
  };

  size_t load(const std::string& path);
  std::pair<size_t, std::string> place_of(const std::string& path) const;
  void add_make(uint64_t inode, bool directory, const std::string& path);
  void add_rename(unsigned flags, const std::string& from, const std::string& to);
  void add_entries(std::vector<Entry> entries);
  void add_data(Operation operation, uint64_t inode);
  void find_syncs();
  void collect(const std::vector<Node>& nodes, size_t node, const std::string& path,
               Tree& tree) const;

  std::string root_;
  std::vector<Node> nodes_;              // at the beginning of the trace, and later made
  std::vector<Node> now_;                // while the trace is read
  std::map<uint64_t, size_t> by_inode_;  // while the trace is read
  std::vector<Operation> operations_;
};

// Makes `tree` in the directory `path`.
void lay_out(const DiskModel::Tree& tree, const std::string& path);

}  // namespace ferry
