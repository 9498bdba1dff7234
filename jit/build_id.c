#include "jit/build_id.h"

#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/hash.h"

enum { SMALL_FILE_BYTES = 1 << 16, NOTES_BYTES = 4096, ID_BYTES = 64, SEGMENTS = 64 };

static void append_hex(const unsigned char* bytes, size_t count, ons__string* out_text) {
  for (size_t i = 0; i < count; ++i) ons__string_appendf(out_text, "%02x", bytes[i]);
}

static size_t padded(size_t size_bytes) { return (size_bytes + 3) & ~(size_t)3; }

/* The GNU build id among a segment's notes. */
static bool find_in_notes(const unsigned char* notes, size_t left_bytes,
                          ons__string* out_text) {
  while (left_bytes >= sizeof(Elf64_Nhdr)) {
    Elf64_Nhdr note;
    memcpy(&note, notes, sizeof(note));
    const size_t name_bytes = padded(note.n_namesz), id_bytes = padded(note.n_descsz);
    if (name_bytes > left_bytes || id_bytes > left_bytes ||
        sizeof(note) + name_bytes + id_bytes > left_bytes) {
      return false;
    }
    const unsigned char* name = notes + sizeof(note);
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof("GNU") &&
        memcmp(name, "GNU", sizeof("GNU")) == 0 && note.n_descsz > 0 &&
        note.n_descsz <= ID_BYTES) {
      append_hex(name + name_bytes, note.n_descsz, out_text);
      return true;
    }
    notes += sizeof(note) + name_bytes + id_bytes;
    left_bytes -= sizeof(note) + name_bytes + id_bytes;
  }
  return false;
}

static bool append_elf_id(int fd, ons__string* out_text) {
  Elf64_Ehdr header;
  if (pread(fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header) ||
      memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > SEGMENTS) {
    return false;
  }
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    unsigned char notes[NOTES_BYTES];
    const off_t at = (off_t)(header.e_phoff + i * sizeof(segment));
    if (pread(fd, &segment, sizeof(segment), at) != (ssize_t)sizeof(segment))
      return false;
    if (segment.p_type != PT_NOTE || segment.p_filesz > sizeof(notes)) continue;
    const ssize_t count = pread(fd, notes, segment.p_filesz, (off_t)segment.p_offset);
    if (count > 0 && find_in_notes(notes, (size_t)count, out_text)) return true;
  }
  return false;
}

static bool append_content(int fd, size_t size_bytes, ons__string* out_text) {
  char bytes[SMALL_FILE_BYTES];
  unsigned char digest[ONS__HASH_BYTES];
  if (size_bytes > sizeof(bytes) ||
      pread(fd, bytes, size_bytes, 0) != (ssize_t)size_bytes) {
    return false;
  }
  ons__hash_of(bytes, size_bytes, digest);
  append_hex(digest, sizeof(digest), out_text);
  return true;
}

bool ons__build_id_append(const char* path, ons__string* out_text) {
  struct stat info;
  int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return false;
  const bool good = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  if (good && !append_elf_id(fd, out_text) &&
      !append_content(fd, (size_t)info.st_size, out_text)) {
    ons__string_appendf(out_text, "%lld.%09ld", (long long)info.st_mtim.tv_sec,
                        info.st_mtim.tv_nsec);
  }
  if (good) ons__string_appendf(out_text, " %lld\n", (long long)info.st_size);
  close(fd);
  return good;
}
