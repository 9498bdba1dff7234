#include "tests/simgpu/sim_image.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_elf(const void* code) { return memcmp(code, ELFMAG, SELFMAG) == 0; }

static const Elf64_Shdr* section_at(const char* code, size_t index) {
  const Elf64_Ehdr* header = (const Elf64_Ehdr*)(const void*)code;
  return (const Elf64_Shdr*)(const void*)(code + header->e_shoff +
                                          index * sizeof(Elf64_Shdr));
}

static const Elf64_Shdr* find_section(const char* code, const char* prefix,
                                      const char* name) {
  const Elf64_Ehdr* header = (const Elf64_Ehdr*)(const void*)code;
  const char* names = code + section_at(code, header->e_shstrndx)->sh_offset;
  size_t length = strlen(prefix);
  for (size_t i = 0; i < header->e_shnum; ++i) {
    const Elf64_Shdr* section = section_at(code, i);
    const char* text = names + section->sh_name;
    if (strncmp(text, prefix, length) == 0 && strcmp(text + length, name) == 0)
      return section;
  }
  return NULL;
}

size_t sim_image_size(const void* code) {
  if (is_elf(code)) {
    const Elf64_Ehdr* header = code;
    return header->e_shoff + (size_t)header->e_shnum * header->e_shentsize;
  }
  return strstr(code, ".version") ? strlen(code) + 1 : 0;
}

/* The section is a list of attributes: a byte for the format, one for the kind, and two
 * of value; format 4 has the size of what follows as its value. Kind 0x17 is a parameter:
 * its number and offset in the second word, its size above bit 18 of the third. */
static void read_parameters(const uint8_t* at, size_t size_bytes, sim_kernel_info* info) {
  const uint8_t* end = at + size_bytes;
  while (at + 4 <= end) {
    uint16_t value = 0;
    memcpy(&value, at + 2, sizeof(value));
    bool sized = at[0] == 4;
    if (sized && at[1] == 0x17) {
      uint16_t ordinal = 0, offset = 0;
      uint32_t bits = 0;
      memcpy(&ordinal, at + 8, sizeof(ordinal));
      memcpy(&offset, at + 10, sizeof(offset));
      memcpy(&bits, at + 12, sizeof(bits));
      if (ordinal < SIM_MAX_PARAMETERS) {
        info->offsets[ordinal] = offset;
        info->sizes[ordinal] = bits >> 18;
        if (info->parameter_count <= ordinal) info->parameter_count = ordinal + 1u;
      }
    }
    at += 4 + (sized ? value : 0);
  }
}

/* ".param .u64 .ptr .align 1 name" or ".param .align 4 .b8 name[12]". */
static void read_ptx_parameter(const char* text, const char* end,
                               uint32_t* out_size_bytes, uint32_t* out_align_bytes) {
  static const char* const types[] = {".u8",  ".s8",  ".b8",  ".u16", ".s16",
                                      ".b16", ".u32", ".s32", ".b32", ".f32",
                                      ".u64", ".s64", ".b64", ".f64"};
  uint32_t element_bytes = 0;
  for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); ++i) {
    const char* found = strstr(text, types[i]);
    if (found && found < end) element_bytes = (uint32_t)atoi(types[i] + 2) / 8;
  }
  const char* bracket = memchr(text, '[', (size_t)(end - text));
  const char* align = strstr(text, ".align ");
  *out_size_bytes = element_bytes * (bracket ? (uint32_t)atoi(bracket + 1) : 1);
  *out_align_bytes = element_bytes;
  if (bracket && align && align < end) *out_align_bytes = (uint32_t)atoi(align + 7);
}

static bool find_in_ptx(const char* text, const char* name, sim_kernel_info* info) {
  char entry[300];
  snprintf(entry, sizeof(entry), ".entry %s(", name);
  const char* at = strstr(text, entry);
  if (!at) return false;
  const char* close = strchr(at, ')');
  uint32_t offset = 0;
  for (at = strstr(at, ".param "); at && at < close; at = strstr(at + 1, ".param ")) {
    if (info->parameter_count == SIM_MAX_PARAMETERS) return false;
    uint32_t size_bytes = 0, align_bytes = 1;
    read_ptx_parameter(at, at + strcspn(at, ",)"), &size_bytes, &align_bytes);
    if (!align_bytes) return false;
    offset = (offset + align_bytes - 1) / align_bytes * align_bytes;
    info->offsets[info->parameter_count] = offset;
    info->sizes[info->parameter_count++] = size_bytes;
    offset += size_bytes;
  }
  return true;
}

bool sim_image_find_kernel(const void* code, const char* name,
                           sim_kernel_info* out_info) {
  enum { RESERVED_BYTES = 1024 }; /* the system's share, in the section since sm_90 */
  *out_info = (sim_kernel_info){0};
  if (!is_elf(code)) return find_in_ptx(code, name, out_info);
  if (!find_section(code, ".text.", name)) return false;
  const Elf64_Shdr* info = find_section(code, ".nv.info.", name);
  if (info) {
    read_parameters((const uint8_t*)code + info->sh_offset, info->sh_size, out_info);
  }
  const Elf64_Shdr* shared = find_section(code, ".nv.shared.", name);
  uint32_t shared_bytes = shared ? (uint32_t)shared->sh_size : 0;
  out_info->static_shared_bytes =
      shared_bytes >= RESERVED_BYTES ? shared_bytes - RESERVED_BYTES : shared_bytes;
  return true;
}

bool sim_image_find_variable(const void* code, const char* name, const void** out_bytes,
                             size_t* out_size_bytes) {
  if (!is_elf(code)) return false;
  const char* image = code;
  const Elf64_Shdr* table = find_section(image, ".symtab", "");
  if (!table) return false;
  const char* names = image + section_at(image, table->sh_link)->sh_offset;
  const Elf64_Sym* symbols = (const Elf64_Sym*)(const void*)(image + table->sh_offset);
  for (size_t i = 0; i < table->sh_size / sizeof(*symbols); ++i) {
    const Elf64_Sym* symbol = &symbols[i];
    if (ELF64_ST_TYPE(symbol->st_info) != STT_OBJECT) continue;
    if (strcmp(names + symbol->st_name, name) != 0) continue;
    const Elf64_Shdr* section = section_at(image, symbol->st_shndx);
    *out_size_bytes = symbol->st_size;
    *out_bytes = section->sh_type == SHT_NOBITS
                     ? NULL
                     : image + section->sh_offset + symbol->st_value;
    return true;
  }
  return false;
}
