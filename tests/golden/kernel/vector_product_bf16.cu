static __device__ __forceinline__ unsigned short bf16_of_f32(float x) { unsigned b = __float_as_uint(x); return (unsigned short)(x != x ? 0x7fc0u : (b + 0x7fffu + ((b >> 16) & 1u)) >> 16); }
static __device__ __forceinline__ float f32_of_bf16(unsigned short x) { return __uint_as_float((unsigned)x << 16); }
static __device__ __forceinline__ float teams_reduce_sum_f32(float x, int lane, int team, float* shared) {
    int i = team * 32 + lane;
    shared[i] = x;
    __syncthreads();
    for (int d = 16; d > 0; d /= 2) {
        if (team < d) shared[i] = shared[i] + shared[i + d * 32];
        __syncthreads();
    }
    x = shared[lane];
    __syncthreads();
    return x;
}
extern "C" __global__ void __launch_bounds__(1024)
fused(const unsigned short* __restrict__ in0, const unsigned short* __restrict__ in1, unsigned short* __restrict__ out0) {
    __shared__ float shared_f32[1024];
    const int lane = threadIdx.x;
    const int team = threadIdx.y;
    const int block = (int)blockIdx.x;
    const int part = block;
    const int q = part / 3;
    const int p = part % 3 * 32 + lane;
    float a0 = 0.0f;
    #pragma unroll 4
    for (int r = team; r < 500; r += 32) {
        const float v0 = f32_of_bf16(in0[r]);
        const float v1 = f32_of_bf16(in1[r * 96 + p]);
        const float v2 = v0 * v1;
        a0 = v2 + a0;
    }
    a0 = teams_reduce_sum_f32(a0, lane, team, shared_f32);
    const float v3 = a0;
    const float v4 = 1.0f / (1.0f + (expf((0.0f - v3))));
    if (team == 0) {
        out0[p] = bf16_of_f32(v4);
    }
}
