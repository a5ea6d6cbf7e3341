static __device__ __forceinline__ float max_f32(float a, float b) { return a > b || a != a ? a : b; }
static __device__ __forceinline__ float min_f32(float a, float b) { return a < b || a != a ? a : b; }
extern "C" __global__ void __launch_bounds__(256)
fused(const float* __restrict__ in0, signed char* __restrict__ out0) {
    const int lane = threadIdx.x;
    const int team = threadIdx.y;
    const int block = (int)blockIdx.x;
    const int part = block;
    const int q = part / 12 + team;
    const int p = part % 12 * 256 + lane;
    const float v0 = in0[p];
    const float v2 = v0 * 12.5f;
    const float v3 = rintf(v2);
    const float v5 = min_f32(v3, 127.0f);
    const float v7 = max_f32(v5, (-128.0f));
    const signed char v8 = (signed char)(int)v7;
    out0[p] = v8;
}
