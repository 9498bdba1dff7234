// CUDA's complex numbers for host compilers, under the name that CUDA sources include.
#ifndef ONSTREAM_CPU_CUCOMPLEX_H_
#define ONSTREAM_CPU_CUCOMPLEX_H_

typedef float2 cuFloatComplex;
typedef double2 cuDoubleComplex;
typedef cuFloatComplex cuComplex;

// The suffix f is the float type's. Quotients are scaled, so that they only overflow
// where the result does.
#define ONS_CPU_COMPLEX(C_, T_, suffix)                                             \
  inline C_ make_##C_(T_ x, T_ y) { return {x, y}; }                                \
  inline T_ cuCreal##suffix(C_ a) { return a.x; }                                   \
  inline T_ cuCimag##suffix(C_ a) { return a.y; }                                   \
  inline C_ cuConj##suffix(C_ a) { return {a.x, -a.y}; }                            \
  inline C_ cuCadd##suffix(C_ a, C_ b) { return {a.x + b.x, a.y + b.y}; }           \
  inline C_ cuCsub##suffix(C_ a, C_ b) { return {a.x - b.x, a.y - b.y}; }           \
  inline C_ cuCmul##suffix(C_ a, C_ b) {                                            \
    return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x};                          \
  }                                                                                 \
  inline C_ cuCdiv##suffix(C_ a, C_ b) {                                            \
    const T_ scale = T_(1) / (::fabs##suffix(b.x) + ::fabs##suffix(b.y));           \
    const C_ top = {a.x * scale, a.y * scale}, bottom = {b.x * scale, b.y * scale}; \
    const T_ size = T_(1) / (bottom.x * bottom.x + bottom.y * bottom.y);            \
    return {(top.x * bottom.x + top.y * bottom.y) * size,                           \
            (top.y * bottom.x - top.x * bottom.y) * size};                          \
  }                                                                                 \
  inline T_ cuCabs##suffix(C_ a) { return ::hypot##suffix(a.x, a.y); }              \
  inline C_ cuCfma##suffix(C_ a, C_ b, C_ c) {                                      \
    return cuCadd##suffix(cuCmul##suffix(a, b), c);                                 \
  }
ONS_CPU_COMPLEX(cuFloatComplex, float, f)
ONS_CPU_COMPLEX(cuDoubleComplex, double, )
#undef ONS_CPU_COMPLEX

inline cuComplex make_cuComplex(float x, float y) { return {x, y}; }
inline cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex a) { return {a.x, a.y}; }
inline cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex a) {
  return {static_cast<float>(a.x), static_cast<float>(a.y)};
}

#endif  // ONSTREAM_CPU_CUCOMPLEX_H_
